#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "base/json.h"
#include "text/jinja/marked_text.h"

namespace lorikeet::text::jinja {

/// What goes wrong while a template runs; the interpreter adds the place and makes an Error of it.
class RenderError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

/// Bounds of one rendering, so that no template runs or grows for ever.
struct Limits {
  std::size_t steps = 10'000'000;              ///< nodes evaluated and elements made
  std::size_t bytes = std::size_t{256} << 20;  ///< of all texts made on the way
  std::size_t depth = 800;                     ///< nested evaluations
};

/// What is left of `Limits`. `use` and `make` throw RenderError when nothing is.
struct Budget {
  Limits left;
  void use(std::size_t steps);
  void make(std::size_t bytes);
};

class Value;
enum class SequenceKind : std::uint8_t { kList, kTuple, kIterator, kKeys, kValues, kItems, kRange };
struct Sequence;
struct Dict;
class Object;

/// The name that was looked for, for the error of its use; empty where nothing had a name.
struct Undefined {
  std::shared_ptr<const std::string> what;
  bool unsafe = false;  ///< exists in Python, but the sandbox forbids it
};

struct None {};

/// A value of the template language with Python's meaning. Values are immutable but for namespaces and
/// iterators; copies are cheap. Integers have 64 bits: what doesn't fit is an error.
class Value {
 public:
  Value() = default;  ///< undefined
  Value(None) : data_(None{}) {}
  Value(bool value) : data_(value) {}
  Value(std::int64_t value) : data_(value) {}
  Value(double value) : data_(value) {}
  Value(MarkedText text) : data_(std::make_shared<const MarkedText>(std::move(text))) {}
  Value(std::shared_ptr<const Sequence> sequence) : data_(std::move(sequence)) {}
  Value(std::shared_ptr<const Dict> dict) : data_(std::move(dict)) {}
  Value(std::shared_ptr<Object> object) : data_(std::move(object)) {}
  Value(const char*) = delete;

  static Value text(std::string_view bytes, Origin origin = kFromTemplate) {
    return Value(MarkedText(bytes, origin));
  }
  static Value undefined(std::string what, bool unsafe = false);
  /// Throws RenderError where values would nest deeper than they may, as all that make containers do.
  static Value sequence(SequenceKind kind, std::vector<Value> items);
  static Value list(std::vector<Value> items);
  static Value tuple(std::vector<Value> items);
  /// What Python has as a generator or iterator: it may be walked once, and has no length.
  static Value iterator(std::vector<Value> items);
  static Value dict(std::vector<std::pair<Value, Value>> members);
  /// `json`, with all its texts, keys too, written by `origin`.
  static Value from_json(const Json& json, Origin origin);

  template <typename T>
  const T* get_if() const {
    return std::get_if<T>(&data_);
  }
  const Undefined* as_undefined() const { return get_if<Undefined>(); }
  const MarkedText* as_text() const {
    const auto* text = get_if<std::shared_ptr<const MarkedText>>();
    return text != nullptr ? text->get() : nullptr;
  }
  const Sequence* as_sequence() const {
    const auto* sequence = get_if<std::shared_ptr<const Sequence>>();
    return sequence != nullptr ? sequence->get() : nullptr;
  }
  const Dict* as_dict() const {
    const auto* dict = get_if<std::shared_ptr<const Dict>>();
    return dict != nullptr ? dict->get() : nullptr;
  }
  Object* as_object() const {
    const auto* object = get_if<std::shared_ptr<Object>>();
    return object != nullptr ? object->get() : nullptr;
  }
  bool is_undefined() const { return as_undefined() != nullptr; }
  bool is_none() const { return get_if<None>() != nullptr; }
  bool is_bool() const { return get_if<bool>() != nullptr; }
  /// An int or a bool, which counts as 0 or 1.
  bool is_integer() const { return is_bool() || get_if<std::int64_t>() != nullptr; }
  bool is_float() const { return get_if<double>() != nullptr; }
  bool is_number() const { return is_integer() || is_float(); }
  bool is_text() const { return as_text() != nullptr; }
  /// Of an integer; of any number.
  std::int64_t integer() const;
  double number() const;

  /// Python's name of the type: "str", "int", "NoneType".
  std::string type_name() const;
  /// How deep containers nest in it: 0 for a scalar.
  std::size_t depth() const;
  /// bool(value)
  bool truth() const;

 private:
  std::variant<Undefined, None, bool, std::int64_t, double, std::shared_ptr<const MarkedText>,
               std::shared_ptr<const Sequence>, std::shared_ptr<const Dict>, std::shared_ptr<Object>>
      data_;
};

struct Sequence {
  using Kind = SequenceKind;
  Kind kind = Kind::kList;
  std::vector<Value> items{};
  std::size_t depth = 1;
  mutable bool consumed = false;  ///< an iterator's

  /// Lists, tuples and ranges: what has an index.
  bool indexable() const { return kind == Kind::kList || kind == Kind::kTuple || kind == Kind::kRange; }
};

struct Dict {
  std::vector<std::pair<Value, Value>> members{};  ///< in order, keys differ
  std::size_t depth = 1;

  const Value* find(const Value& key) const;
  const Value* find(std::string_view key) const;
};

struct Arguments {
  std::vector<Value> positional{};
  std::vector<std::pair<std::string, Value>> named{};
};

class Interpreter;

/// Functions, macros, namespaces, loops.
class Object {
 public:
  virtual ~Object() = default;
  virtual std::string type_name() const = 0;
  /// Undefined where there is none.
  virtual Value attribute(std::string_view name) const;
  virtual void set_attribute(const std::string& name, Value value);
  virtual bool callable() const { return false; }
  virtual Value call(Interpreter& interpreter, Arguments arguments);
  virtual std::size_t depth() const { return 1; }
};

/// a == b and an order of a before b; the latter throws RenderError for what Python can't order.
bool equal(const Value& a, const Value& b);
bool less(const Value& a, const Value& b);
/// Throws RenderError for values that can't be a key.
void require_hashable(const Value& value);

/// The elements that a loop over `value` sees; walks an iterator. Throws RenderError if it can't be iterated.
std::vector<Value> elements(const Value& value, Budget& budget);
/// len(value)
std::int64_t length(const Value& value);
/// needle in haystack
bool contains(const Value& haystack, const Value& needle, Budget& budget);

}  // namespace lorikeet::text::jinja
