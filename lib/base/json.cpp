#include "base/json.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>

#include "base/error.h"
#include "base/hash.h"
#include "base/strings.h"

namespace lorikeet {
namespace {

void dump_string(const std::string& text, std::string& out) {
  out += '"';
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    switch (c) {
      case '"': out += "\\\""; break;
      case '\\': out += "\\\\"; break;
      case '\n': out += "\\n"; break;
      case '\r': out += "\\r"; break;
      case '\t': out += "\\t"; break;
      default:
        if (byte < 0x20 || byte == 0x7F) {
          out += "\\u00" + to_hex({&c, 1});
        } else {
          out += c;
        }
    }
  }
  out += '"';
}

void dump_double(double value, std::string& out) {
  if (!std::isfinite(value)) {
    out += "null";
    return;
  }
  std::array<char, 32> buffer{};
  const auto result = std::to_chars(buffer.data(), buffer.data() + buffer.size(), value);
  const std::string_view digits(buffer.data(), static_cast<std::size_t>(result.ptr - buffer.data()));
  out += digits;
  // An integer-valued double stays a number with a fraction, so that reading gives the same kind.
  if (digits.find_first_of(".eE") == std::string_view::npos) out += ".0";
}

void dump_value(const Json& value, int indent, int level, std::string& out) {
  const auto new_line = [&](int at) {
    if (indent < 0) return;
    out += '\n';
    out.append(static_cast<std::size_t>(indent) * static_cast<std::size_t>(at), ' ');
  };
  if (value.is_null()) {
    out += "null";
  } else if (value.is_bool()) {
    out += value.boolean() ? "true" : "false";
  } else if (value.is_integer()) {
    out += std::to_string(value.integer());
  } else if (value.is_number()) {
    dump_double(value.number(), out);
  } else if (value.is_string()) {
    dump_string(value.string(), out);
  } else if (value.is_array()) {
    out += '[';
    bool first = true;
    for (const Json& item : value.array()) {
      if (!first) out += indent < 0 ? "," : ", ";
      first = false;
      dump_value(item, -1, 0, out);  // arrays on one line: they are short, or data
    }
    out += ']';
  } else {
    out += '{';
    bool first = true;
    for (const auto& [key, item] : value.object()) {
      if (!first) out += ',';
      first = false;
      new_line(level + 1);
      dump_string(key, out);
      out += indent < 0 ? ":" : ": ";
      dump_value(item, indent, level + 1, out);
    }
    if (!first) new_line(level);
    out += '}';
  }
}

}  // namespace

std::string_view Json::kind_name() const {
  static constexpr std::array<std::string_view, 7> kNames{"null",   "boolean", "integer", "number",
                                                          "string", "array",   "object"};
  return kNames.at(value_.index());
}

const Json* Json::find(std::string_view key) const {
  const auto* members = std::get_if<Object>(&value_);
  if (members == nullptr) return nullptr;
  const auto at =
      std::find_if(members->begin(), members->end(), [&](const Member& m) { return m.first == key; });
  return at == members->end() ? nullptr : &at->second;
}

Json& Json::set(std::string_view key, Json value) {
  if (is_null()) value_ = Object{};
  for (auto& [name, member] : object()) {
    if (name == key) {
      member = std::move(value);
      return *this;
    }
  }
  object().emplace_back(std::string(key), std::move(value));
  return *this;
}

std::string Json::dump(int indent) const {
  std::string out;
  dump_value(*this, indent, 0, out);
  return out;
}

std::string Json::brief() const {
  constexpr std::size_t kMost = 60;
  const std::string text = dump();
  return escape_control(text.size() > kMost ? text.substr(0, kMost) + "..." : text);
}

void JsonView::fail(std::string_view expected) const {
  throw Error("[" + where_ + "] expected " + std::string(expected) + ", got " + value_->brief());
}

bool JsonView::has(std::string_view key) const {
  const Json* member = value_->find(key);
  return member != nullptr && !member->is_null();
}

JsonView JsonView::at(std::string_view key) const {
  if (!value_->is_object()) fail("an object with key '" + std::string(key) + "'");
  const Json* member = value_->find(key);
  if (member == nullptr) throw Error("[" + where_ + "] key '" + std::string(key) + "' is missing");
  return {*member, where_ + ": " + std::string(key)};
}

std::optional<JsonView> JsonView::maybe(std::string_view key) const {
  if (!value_->is_object()) fail("an object");
  if (!has(key)) return std::nullopt;
  return at(key);
}

std::vector<JsonView> JsonView::items() const {
  if (!value_->is_array()) fail("an array");
  std::vector<JsonView> views;
  views.reserve(value_->array().size());
  for (std::size_t i = 0; i < value_->array().size(); ++i) {
    views.emplace_back(value_->array()[i], where_ + "[" + std::to_string(i) + "]");
  }
  return views;
}

std::vector<std::pair<std::string, JsonView>> JsonView::members() const {
  if (!value_->is_object()) fail("an object");
  std::vector<std::pair<std::string, JsonView>> views;
  for (const auto& [key, member] : value_->object())
    views.emplace_back(key, JsonView(member, where_ + ": " + key));
  return views;
}

bool JsonView::as_bool() const {
  if (!value_->is_bool()) fail("true or false");
  return value_->boolean();
}

std::int64_t JsonView::as_int() const {
  if (value_->is_integer()) return value_->integer();
  // Some writers print whole numbers as 2.0; 2^53 bounds what a double holds exactly.
  if (value_->is_number() && std::floor(value_->number()) == value_->number() &&
      std::abs(value_->number()) <= 9007199254740992.0) {
    return static_cast<std::int64_t>(value_->number());
  }
  fail("an integer");
}

double JsonView::as_number() const {
  if (!value_->is_number()) fail("a number");
  return value_->number();
}

const std::string& JsonView::as_string() const {
  if (!value_->is_string()) fail("a string");
  return value_->string();
}

bool JsonView::get_bool(std::string_view key, bool fallback) const {
  const auto member = maybe(key);
  return member ? member->as_bool() : fallback;
}

std::int64_t JsonView::get_int(std::string_view key, std::int64_t fallback) const {
  const auto member = maybe(key);
  return member ? member->as_int() : fallback;
}

double JsonView::get_number(std::string_view key, double fallback) const {
  const auto member = maybe(key);
  return member ? member->as_number() : fallback;
}

std::string JsonView::get_string(std::string_view key, const std::string& fallback) const {
  const auto member = maybe(key);
  return member ? member->as_string() : fallback;
}

}  // namespace lorikeet
