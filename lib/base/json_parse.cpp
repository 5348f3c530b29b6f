// The reader behind Json::parse: nlohmann's SAX interface, which keeps its own stack on the heap (its DOM
// overflows the call stack on deep nesting), with a handler that enforces the limits while it builds.
#include <algorithm>
#include <memory>
#include <nlohmann/json.hpp>
#include <unordered_set>

#include "base/error.h"
#include "base/json.h"
#include "base/strings.h"

namespace lorikeet {
namespace {

struct Position {
  std::size_t line;
  std::size_t column;
};

Position position_of(std::string_view text, std::size_t offset) {
  const std::string_view before = text.substr(0, std::min(offset, text.size()));
  const std::size_t line = 1 + static_cast<std::size_t>(std::count(before.begin(), before.end(), '\n'));
  const std::size_t last = before.rfind('\n');
  return {line, before.size() - (last == std::string_view::npos ? 0 : last + 1)};
}

// Thrown inside the handler; `parse` adds the place.
struct LimitError {
  std::string message;
};

class Builder : public nlohmann::json_sax<nlohmann::json> {
 public:
  Builder(Json& root, const JsonLimits& limits) : root_(root), limits_(limits) {}

  bool null() override { return add(Json()); }
  bool boolean(bool value) override { return add(Json(value)); }
  bool number_integer(number_integer_t value) override { return add(Json(std::int64_t{value})); }
  bool number_unsigned(number_unsigned_t value) override {
    if (value > static_cast<std::uint64_t>(INT64_MAX)) return add(Json(static_cast<double>(value)));
    return add(Json(static_cast<std::int64_t>(value)));
  }
  bool number_float(number_float_t value, const string_t& /*text*/) override { return add(Json(value)); }
  bool string(string_t& value) override { return add(Json(std::move(value))); }
  bool binary(binary_t& /*value*/) override { return false; }  // never sent for text

  bool start_object(std::size_t /*elements*/) override { return open(Json(Json::Object{})); }
  bool start_array(std::size_t /*elements*/) override { return open(Json(Json::Array{})); }
  bool end_array() override { return close(); }
  bool end_object() override { return close(); }

  bool key(string_t& name) override {
    if (!frames_.back().keys.insert(name).second)
      throw LimitError{"duplicate key '" + escape_control(name) + "'"};
    frames_.back().key = std::move(name);
    return true;
  }

  bool parse_error(std::size_t position, const std::string& /*token*/,
                   const nlohmann::json::exception& error) override {
    error_position = position;
    // "[json.exception.parse_error.101] parse error at line 1, column 2: syntax error ...": keep the last
    // part.
    const std::string_view what = error.what();
    const std::size_t cut = what.find(": ");
    error_message = what.substr(cut == std::string_view::npos ? 0 : cut + 2);
    return false;
  }

  std::size_t error_position = 0;
  std::string error_message;

 private:
  struct Frame {
    Json value;
    std::string key;                       // of the member being read
    std::unordered_set<std::string> keys;  // seen so far
  };

  // Every value comes through here once, a container when it ends.
  bool add(Json value) {
    if (++values_ > limits_.max_values)
      throw LimitError{"more than " + std::to_string(limits_.max_values) + " values"};
    if (frames_.empty()) {
      root_ = std::move(value);
      return true;
    }
    Frame& frame = frames_.back();
    if (frame.value.is_array()) {
      frame.value.array().push_back(std::move(value));
    } else {
      frame.value.object().emplace_back(std::move(frame.key), std::move(value));
    }
    return true;
  }

  bool open(Json container) {
    if (frames_.size() >= limits_.max_depth) {
      throw LimitError{"nested deeper than " + std::to_string(limits_.max_depth) + " levels"};
    }
    frames_.push_back({std::move(container), {}, {}});
    return true;
  }

  bool close() {
    Json value = std::move(frames_.back().value);
    frames_.pop_back();
    return add(std::move(value));
  }

  Json& root_;
  const JsonLimits& limits_;
  std::vector<Frame> frames_;
  std::size_t values_ = 0;
};

// An input iterator that knows how far it was read, so that limit errors can name the place.
struct CountingIterator {
  using iterator_category = std::input_iterator_tag;
  using value_type = char;
  using difference_type = std::ptrdiff_t;
  using pointer = const char*;
  using reference = const char&;

  const char* at;
  std::size_t* consumed;

  reference operator*() const { return *at; }
  CountingIterator& operator++() {
    ++at;
    ++*consumed;
    return *this;
  }
  CountingIterator operator++(int) {
    CountingIterator old = *this;
    ++*this;
    return old;
  }
  bool operator==(const CountingIterator& other) const { return at == other.at; }
  bool operator!=(const CountingIterator& other) const { return at != other.at; }
};

}  // namespace

Json Json::parse(std::string_view text, const std::string& where, const JsonLimits& limits) {
  if (text.size() > limits.max_bytes) {
    throw Error("[" + where + "] JSON of " + std::to_string(text.size()) + " bytes, at most " +
                std::to_string(limits.max_bytes) + " are accepted");
  }
  const auto fail = [&](std::size_t offset, const std::string& message) -> Error {
    const Position p = position_of(text, offset);
    return Error("[" + where + "] not valid JSON at line " + std::to_string(p.line) + ", column " +
                 std::to_string(p.column) + ": " + message);
  };
  Json root;
  Builder builder(root, limits);
  std::size_t consumed = 0;
  try {
    // NOLINTNEXTLINE(bugprone-suspicious-stringview-data-usage): the end comes with it
    const CountingIterator begin{text.data(), &consumed};
    const CountingIterator end{text.data() + text.size(), &consumed};
    if (!nlohmann::json::sax_parse(begin, end, &builder)) {
      throw fail(builder.error_position, escape_control(builder.error_message));
    }
  } catch (const LimitError& error) {
    throw fail(consumed, error.message);
  }
  // nlohmann takes a NUL byte for the end of the text, whatever follows it.
  if (const std::size_t nul = text.find('\0'); nul != std::string_view::npos)
    throw fail(nul + 1, "a NUL byte (\\x00), which JSON doesn't have");
  return root;
}

}  // namespace lorikeet
