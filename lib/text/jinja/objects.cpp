#include "text/jinja/objects.h"

#include <array>
#include <ctime>

#include "text/jinja/functions.h"
#include "text/jinja/output.h"

namespace lorikeet::text::jinja {
namespace {

constexpr std::size_t kMaxRange = 100'000;  // as Jinja's sandbox has it

class LoopMethod : public Object {
 public:
  LoopMethod(LoopState* state, bool cycle) : state_(state), cycle_(cycle) {}
  std::string type_name() const override { return "method"; }
  bool callable() const override { return true; }
  Value call(Interpreter&, Arguments arguments) override {
    const std::vector<Value>& values = arguments.positional;
    if (cycle_) {
      if (values.empty()) throw RenderError("loop.cycle: no items for cycling given");
      return values[state_->index % values.size()];
    }
    const bool same = state_->has_seen && equal(Value::tuple(values), Value::tuple(state_->last_seen));
    state_->last_seen = values;
    state_->has_seen = true;
    return !same;
  }

 private:
  LoopState* state_;
  bool cycle_;
};

class Global : public Object {
 public:
  using Function = Value (*)(Interpreter& interpreter, const Arguments& arguments);
  explicit Global(Function function) : function_(function) {}
  std::string type_name() const override { return "function"; }
  bool callable() const override { return true; }
  Value call(Interpreter& interpreter, Arguments arguments) override {
    return function_(interpreter, arguments);
  }

 private:
  Function function_;
};

Value range(Interpreter& interpreter, const Arguments& arguments) {
  const std::vector<Value>& given = arguments.positional;
  if (given.empty() || given.size() > 3 || !arguments.named.empty())
    throw RenderError("range: expected one to three integers");
  std::int64_t at = given.size() > 1 ? given[0].integer() : 0;
  const std::int64_t end = given.size() > 1 ? given[1].integer() : given[0].integer();
  const std::int64_t step = given.size() > 2 ? given[2].integer() : 1;
  if (step == 0) throw RenderError("range: the step must not be zero");
  auto out = std::make_shared<Sequence>();
  out->kind = Sequence::Kind::kRange;
  while (step > 0 ? at < end : at > end) {
    if (out->items.size() == kMaxRange) throw RenderError("range: more than 100000 numbers");
    out->items.emplace_back(at);
    if (__builtin_add_overflow(at, step, &at)) break;
  }
  interpreter.budget().use(out->items.size());
  return std::shared_ptr<const Sequence>(std::move(out));
}

using Members = std::vector<std::pair<Value, Value>>;

// dict(mapping, name=value ...), also of namespace.
Members members_of(Interpreter& interpreter, const Arguments& arguments) {
  Members members;
  const auto set = [&](const Value& key, const Value& value) {
    require_hashable(key);
    interpreter.budget().use(members.size());
    for (auto& member : members)
      if (equal(member.first, key)) {
        member.second = value;
        return;
      }
    members.emplace_back(key, value);
  };
  if (arguments.positional.size() > 1) throw RenderError("dict: expected at most one mapping");
  for (const Value& given : arguments.positional) {
    if (const Dict* dict = given.as_dict()) {
      members = dict->members;
      continue;
    }
    for (const Value& pair : elements(given, interpreter.budget())) {
      const std::vector<Value> parts = elements(pair, interpreter.budget());
      if (parts.size() != 2) throw RenderError("dict: expected pairs");
      set(parts[0], parts[1]);
    }
  }
  for (const auto& [name, value] : arguments.named) set(Value::text(name), value);
  return members;
}

Value make_dict(Interpreter& interpreter, const Arguments& arguments) {
  return Value::dict(members_of(interpreter, arguments));
}

Value make_namespace(Interpreter& interpreter, const Arguments& arguments) {
  auto space = std::make_shared<Namespace>();
  interpreter.keep(space);
  for (auto& [key, value] : members_of(interpreter, arguments)) {
    if (!key.is_text()) throw RenderError("namespace: expected names as keys");
    space->set_attribute(key.as_text()->bytes(), value);
  }
  return std::shared_ptr<Object>(std::move(space));
}

Value raise_exception(Interpreter&, const Arguments& arguments) {
  ArgumentReader read("raise_exception", arguments);
  const MarkedText message = to_text(read.required("message"));
  read.finish();
  throw RenderError("the template refuses these messages: " + message.bytes());
}

// A time without a zone has none to write in Python, which writes microseconds, too: C's strftime does
// otherwise.
std::string as_c_has_it(std::string_view format) {
  std::string out;
  for (std::size_t i = 0; i < format.size(); ++i) {
    if (format[i] != '%' || i + 1 == format.size()) {
      out += format[i];
      continue;
    }
    const char next = format[++i];
    if (next == 'f') {
      out += "000000";
    } else if (next != 'z' && next != 'Z') {
      out += '%';
      out += next;
    }
  }
  return out;
}

Value strftime_now(Interpreter& interpreter, const Arguments& arguments) {
  ArgumentReader read("strftime_now", arguments);
  const MarkedText format = to_text(read.required("format"));
  read.finish();
  const std::string& date = interpreter.date();
  std::tm time{};
  time.tm_year = std::stoi(date.substr(0, 4)) - 1900;
  time.tm_mon = std::stoi(date.substr(5, 2)) - 1;
  time.tm_mday = std::stoi(date.substr(8, 2));
  time.tm_hour = 12;
  timegm(&time);  // fills in the day of the week and of the year
  if (format.size() > 200) throw RenderError("strftime_now: the format is too long");
  if (format.empty()) return MarkedText();
  std::array<char, 4096> buffer{};
  const std::string pattern = as_c_has_it(format.bytes());
  const std::size_t length = std::strftime(buffer.data(), buffer.size(), pattern.c_str(), &time);
  return MarkedText(std::string_view(buffer.data(), length));
}

}  // namespace

Value Namespace::attribute(std::string_view name) const {
  for (const auto& [member, value] : members_)
    if (member == name) return value;
  return Object::attribute(name);
}

void Namespace::set_attribute(const std::string& name, Value value) {
  if (name.starts_with('_'))
    throw RenderError("a namespace can't have the name '" + name + "', which begins with _");
  for (auto& [member, old] : members_)
    if (member == name) {
      old = std::move(value);
      return;
    }
  members_.emplace_back(name, std::move(value));
}

Value Loop::attribute(std::string_view name) const {
  if (state_ == nullptr) throw RenderError("a loop is used after its end");
  const auto index = static_cast<std::int64_t>(state_->index);
  const auto length = static_cast<std::int64_t>(state_->items->size());
  if (name == "index") return index + 1;
  if (name == "index0") return index;
  if (name == "revindex") return length - index;
  if (name == "revindex0") return length - index - 1;
  if (name == "first") return index == 0;
  if (name == "last") return index + 1 == length;
  if (name == "length") return length;
  if (name == "depth") return static_cast<std::int64_t>(state_->depth) + 1;
  if (name == "depth0") return static_cast<std::int64_t>(state_->depth);
  if (name == "previtem")
    return index == 0 ? Value::undefined("there is no previous item") : (*state_->items)[state_->index - 1];
  if (name == "nextitem")
    return index + 1 == length ? Value::undefined("there is no next item")
                               : (*state_->items)[state_->index + 1];
  if (name == "cycle" || name == "changed")
    return std::shared_ptr<Object>(std::make_shared<LoopMethod>(state_, name == "cycle"));
  return Object::attribute(name);
}

Value Loop::call(Interpreter& interpreter, Arguments arguments) {
  if (state_ == nullptr || !state_->statement->recursive)
    throw RenderError("loop can be called only in a loop marked as recursive");
  ArgumentReader read("loop", arguments);
  const Value items = read.required("iterable");
  read.finish();
  return interpreter.call_loop(*state_->statement, state_->scope, items, state_->depth + 1);
}

Value Macro::attribute(std::string_view name) const {
  if (name == "name") return Value::text(statement_.name);
  return Object::attribute(name);
}

Value Macro::call(Interpreter& interpreter, Arguments arguments) {
  return interpreter.call_body(statement_, scope_, std::move(arguments));
}

Value global_function(const std::string& name) {
  Global::Function function = nullptr;
  if (name == "range") function = range;
  if (name == "dict") function = make_dict;
  if (name == "namespace") function = make_namespace;
  if (name == "raise_exception") function = raise_exception;
  if (name == "strftime_now") function = strftime_now;
  if (function == nullptr) return Value::undefined("'" + name + "' is undefined");
  return std::shared_ptr<Object>(std::make_shared<Global>(function));
}

}  // namespace lorikeet::text::jinja
