#include "io/pickle.h"

#include <bit>
#include <cstring>
#include <map>
#include <utility>

#include "base/error.h"

// Python's Lib/pickletools.py says what each instruction does.
namespace lorikeet::io {
namespace {

using Kind = PickleValue::Kind;

constexpr std::size_t kMostValues = std::size_t{1} << 22;

PickleValue of_integer(Kind kind, std::int64_t integer) {
  PickleValue value;
  value.kind = kind;
  value.integer = integer;
  return value;
}

class Machine {
 public:
  Machine(std::string_view bytes, const std::string& name) : bytes_(bytes), name_(name) {}

  Pickle run() {
    while (place_ < bytes_.size()) {
      const auto code = static_cast<unsigned char>(bytes_[place_++]);
      if (code == '.') {
        pickle_.root = pop();
        return std::move(pickle_);
      }
      if (!push_value(code) && !build(code) && !remember(code))
        fail("instruction " + std::to_string(code) + ", which tensors don't need");
      if (++steps_ > kMostValues) fail("too many values");
    }
    fail("no end");
  }

 private:
  PickleValue with_items(Kind kind, std::vector<PickleValue> items = {}) {
    PickleValue value;
    value.kind = kind;
    value.items = &pickle_.items.emplace_back(std::move(items));
    return value;
  }
  static PickleValue of_text(Kind kind, std::string_view text) {
    PickleValue value;
    value.kind = kind;
    value.text = text;
    return value;
  }
  PickleValue global(std::string_view module, std::string_view function) {
    return of_text(Kind::kGlobal,
                   pickle_.texts.emplace_back(std::string(module) + " " + std::string(function)));
  }

  [[noreturn]] void fail(const std::string& what) const {
    throw Error("[file] '" + name_ + "': expected tensors as torch.save writes them; the pickle in it has " +
                what + " at byte " + std::to_string(place_));
  }

  std::string_view take(std::size_t length) {
    if (length > bytes_.size() - place_) fail("a value that is cut short");
    const std::string_view part = bytes_.substr(place_, length);
    place_ += length;
    return part;
  }
  template <typename T>
  T number() {
    T value{};
    take(sizeof value).copy(reinterpret_cast<char*>(&value), sizeof value);
    return value;
  }
  std::string_view line() {
    const std::size_t end = bytes_.find('\n', place_);
    if (end == std::string_view::npos) fail("a line without end");
    const std::string_view text = take(end - place_);
    ++place_;
    return text;
  }

  PickleValue pop() {
    if (stack_.empty() || (!marks_.empty() && marks_.back() >= stack_.size()))
      fail("a value that isn't there");
    const PickleValue value = stack_.back();
    stack_.pop_back();
    return value;
  }
  std::vector<PickleValue> pop_to_mark() {
    if (marks_.empty()) fail("a mark that isn't there");
    const auto begin = stack_.begin() + static_cast<std::ptrdiff_t>(marks_.back());
    marks_.pop_back();
    std::vector<PickleValue> values(std::make_move_iterator(begin), std::make_move_iterator(stack_.end()));
    stack_.erase(begin, stack_.end());
    return values;
  }
  void push(const PickleValue& value) { stack_.push_back(value); }
  void push_tuple(std::size_t length) {
    std::vector<PickleValue> items(length);
    for (std::size_t i = length; i-- > 0;) items[i] = pop();
    push(with_items(Kind::kTuple, std::move(items)));
  }
  std::vector<PickleValue>& items_of_top(Kind kind) {
    if (stack_.empty() || !stack_.back().items || !(stack_.back().is(kind) || stack_.back().is(Kind::kCall)))
      fail("items for what takes none");
    return *stack_.back().items;
  }

  std::int64_t long_integer() {
    const std::string_view digits = take(number<std::uint8_t>());
    std::uint64_t value =
        !digits.empty() && static_cast<signed char>(digits.back()) < 0 ? ~std::uint64_t{0} : 0;
    if (digits.size() > sizeof value) fail("a number of more than 64 bits");
    for (std::size_t i = digits.size(); i-- > 0;) value = value << 8 | static_cast<unsigned char>(digits[i]);
    return static_cast<std::int64_t>(value);
  }

  // Instructions that push what they say.
  bool push_value(unsigned char code) {
    switch (code) {
      case 'N': push({}); return true;
      case 0x88: push(of_integer(Kind::kBool, 1)); return true;
      case 0x89: push(of_integer(Kind::kBool, 0)); return true;
      case 'J': push(of_integer(Kind::kInteger, number<std::int32_t>())); return true;
      case 'K': push(of_integer(Kind::kInteger, number<std::uint8_t>())); return true;
      case 'M': push(of_integer(Kind::kInteger, number<std::uint16_t>())); return true;
      case 0x8a: push(of_integer(Kind::kInteger, long_integer())); return true;
      case 'G': {  // big-endian
        PickleValue value;
        value.kind = Kind::kFloat;
        std::uint64_t bits = 0;
        for (const char byte : take(sizeof bits)) bits = bits << 8 | static_cast<unsigned char>(byte);
        value.number = std::bit_cast<double>(bits);
        push(value);
        return true;
      }
      case 'X': push(of_text(Kind::kText, take(number<std::uint32_t>()))); return true;
      case 0x8c: push(of_text(Kind::kText, take(number<std::uint8_t>()))); return true;
      case ')':
      case ']': push(with_items(Kind::kTuple)); return true;
      case '}': push(with_items(Kind::kDict)); return true;
      case 'c': {
        const std::string_view module = line();
        push(global(module, line()));
        return true;
      }
      default: return false;
    }
  }

  // Instructions that make something of what is on the stack.
  bool build(unsigned char code) {
    switch (code) {
      case '(': marks_.push_back(stack_.size()); return true;
      case 't':
      case 'l': push(with_items(Kind::kTuple, pop_to_mark())); return true;
      case 0x85:
      case 0x86:
      case 0x87: push_tuple(code - 0x84); return true;
      case 'd': push(with_items(Kind::kDict, pop_to_mark())); return true;
      case 's': {
        const PickleValue value = pop(), key = pop();
        std::vector<PickleValue>& items = items_of_top(Kind::kDict);
        items.push_back(key);
        items.push_back(value);
        return true;
      }
      case 'a': {
        const PickleValue value = pop();
        items_of_top(Kind::kTuple).push_back(value);
        return true;
      }
      case 'u':
      case 'e': {
        std::vector<PickleValue> more = pop_to_mark();
        std::vector<PickleValue>& items = items_of_top(code == 'u' ? Kind::kDict : Kind::kTuple);
        items.insert(items.end(), std::make_move_iterator(more.begin()), std::make_move_iterator(more.end()));
        return true;
      }
      case 0x93: {
        const PickleValue function = pop(), module = pop();
        push(global(module.text, function.text));
        return true;
      }
      case 'Q': push(with_items(Kind::kStorage, {pop()})); return true;
      case 'R':
      case 0x81: {
        const PickleValue arguments = pop(), function = pop();
        call(function, arguments);
        return true;
      }
      case 'b':  // the state of an object that nobody makes
      case '0': pop(); return true;
      default: return false;
    }
  }

  void call(const PickleValue& function, const PickleValue& arguments) {
    if (function.is(Kind::kGlobal) && function.text == "collections OrderedDict") {
      push(with_items(Kind::kDict));
    } else {
      push(with_items(Kind::kCall, {function, arguments}));
    }
  }

  bool remember(unsigned char code) {
    switch (code) {
      case 0x80: number<std::uint8_t>(); return true;   // the protocol
      case 0x95: number<std::uint64_t>(); return true;  // a frame's length
      case 'q': keep(number<std::uint8_t>()); return true;
      case 'r': keep(number<std::uint32_t>()); return true;
      case 0x94: keep(static_cast<std::uint32_t>(memo_.size())); return true;
      case 'h': recall(number<std::uint8_t>()); return true;
      case 'j': recall(number<std::uint32_t>()); return true;
      default: return false;
    }
  }
  void keep(std::uint32_t number) {
    if (stack_.empty()) fail("a value that isn't there");
    memo_[number] = stack_.back();
  }
  void recall(std::uint32_t number) {
    const auto found = memo_.find(number);
    if (found == memo_.end()) fail("a value that wasn't kept");
    push(found->second);
  }

  std::string_view bytes_;
  const std::string& name_;
  Pickle pickle_;
  std::size_t place_ = 0;
  std::size_t steps_ = 0;
  std::vector<PickleValue> stack_;
  std::vector<std::size_t> marks_;
  std::map<std::uint32_t, PickleValue> memo_;
};

}  // namespace

bool PickleValue::is_call(std::string_view global) const {
  return is(Kind::kCall) && !items->empty() && (*items)[0].is(Kind::kGlobal) && (*items)[0].text == global;
}

Pickle read_pickle(std::string_view bytes, const std::string& name) { return Machine(bytes, name).run(); }

}  // namespace lorikeet::io
