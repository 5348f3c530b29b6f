#pragma once

#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

namespace lorikeet {

/// What the reader accepts from outside. All are hard limits; the defaults hold for every file but the
/// largest tokenizers.
struct JsonLimits {
  std::size_t max_depth = 64;
  std::size_t max_bytes = std::size_t{256} << 20;
  /// Elements and members of all levels, and the root. A value takes up to 80 bytes of memory while it is
  /// read, 220 with a key, in a text from 2 bytes: this, not max_bytes, bounds the memory, here to about 1
  /// GB.
  std::size_t max_values = std::size_t{1} << 22;
};

/// A JSON value (RFC 8259). Objects keep the order of their members. A plain value type.
///
/// `Json::parse` is the one reader of JSON from outside: it never recurses on the input, limits depth, size
/// and number of values, refuses duplicate keys, trailing bytes, invalid UTF-8, NaN and Infinity.
class Json {
 public:
  using Array = std::vector<Json>;
  using Member = std::pair<std::string, Json>;
  using Object = std::vector<Member>;

  Json() = default;  ///< null
  Json(std::nullptr_t) {}
  Json(bool value) : value_(value) {}
  Json(int value) : value_(std::int64_t{value}) {}
  Json(std::int64_t value) : value_(value) {}
  Json(std::uint64_t value) : value_(static_cast<std::int64_t>(value)) {}
  Json(double value) : value_(value) {}
  Json(const char* value) : value_(std::string(value)) {}
  Json(std::string_view value) : value_(std::string(value)) {}
  Json(std::string value) : value_(std::move(value)) {}
  Json(Array value) : value_(std::move(value)) {}
  Json(Object value) : value_(std::move(value)) {}

  /// Parses the whole of `text`. `where` starts the error's text ("config.json"), which also names line
  /// and column. Throws Error.
  static Json parse(std::string_view text, const std::string& where, const JsonLimits& limits = {});

  bool is_null() const { return std::holds_alternative<std::monostate>(value_); }
  bool is_bool() const { return std::holds_alternative<bool>(value_); }
  bool is_integer() const { return std::holds_alternative<std::int64_t>(value_); }
  bool is_number() const { return is_integer() || std::holds_alternative<double>(value_); }
  bool is_string() const { return std::holds_alternative<std::string>(value_); }
  bool is_array() const { return std::holds_alternative<Array>(value_); }
  bool is_object() const { return std::holds_alternative<Object>(value_); }

  /// "null", "boolean", "integer", "number", "string", "array" or "object": for error texts.
  std::string_view kind_name() const;
  /// The value as an error text shows it: its JSON, cut after 60 bytes, without control characters.
  std::string brief() const;

  // Unchecked by type name: std::bad_variant_access if the kind is another. Use JsonView on outside data.
  bool boolean() const { return std::get<bool>(value_); }
  std::int64_t integer() const { return std::get<std::int64_t>(value_); }
  double number() const { return is_integer() ? static_cast<double>(integer()) : std::get<double>(value_); }
  const std::string& string() const { return std::get<std::string>(value_); }
  const Array& array() const { return std::get<Array>(value_); }
  Array& array() { return std::get<Array>(value_); }
  const Object& object() const { return std::get<Object>(value_); }
  Object& object() { return std::get<Object>(value_); }

  /// The member of an object, or nullptr (also when this is no object). Linear in the members.
  const Json* find(std::string_view key) const;

  /// Sets or adds a member; makes an object of a null.
  Json& set(std::string_view key, Json value);

  /// One line without blanks (indent < 0), or indented. Doubles are written so that they read back equal;
  /// NaN and infinities, which JSON lacks, as null.
  std::string dump(int indent = -1) const;

 private:
  std::variant<std::monostate, bool, std::int64_t, double, std::string, Array, Object> value_;
};

/// Reads the fields of outside JSON with errors that name the file, the path inside it, what was expected
/// and what was found. A light view: the Json must outlive it.
class JsonView {
 public:
  JsonView(const Json& value, std::string where) : value_(&value), where_(std::move(where)) {}

  const Json& json() const { return *value_; }
  /// "config.json: rope_scaling.factor"
  const std::string& where() const { return where_; }

  /// True if this is an object with `key`, and its value is not null.
  bool has(std::string_view key) const;

  /// The member `key`, which must be there (null counts as there).
  JsonView at(std::string_view key) const;
  /// The member `key` if there and not null.
  std::optional<JsonView> maybe(std::string_view key) const;
  /// The elements of an array.
  std::vector<JsonView> items() const;
  /// The members of an object, in the file's order.
  std::vector<std::pair<std::string, JsonView>> members() const;

  bool as_bool() const;
  std::int64_t as_int() const;
  double as_number() const;
  const std::string& as_string() const;

  // The member `key`, or `fallback` when it is absent or null.
  bool get_bool(std::string_view key, bool fallback) const;
  std::int64_t get_int(std::string_view key, std::int64_t fallback) const;
  double get_number(std::string_view key, double fallback) const;
  std::string get_string(std::string_view key, const std::string& fallback) const;

  /// An Error about this value: "[where] expected <expected>, got <kind>".
  [[noreturn]] void fail(std::string_view expected) const;

 private:
  const Json* value_;
  std::string where_;
};

}  // namespace lorikeet
