#include "text/jinja/output.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <cstdio>

#include "text/jinja/characters.h"
#include "text/unicode.h"

namespace lorikeet::text::jinja {
namespace {

[[gnu::format(printf, 1, 0)]] std::string formatted(const char* pattern, unsigned value) {
  std::array<char, 16> buffer{};
  const int length = std::snprintf(buffer.data(), buffer.size(), pattern, value);
  return {buffer.data(), static_cast<std::size_t>(length)};
}

// Escapes `text` character by character; each escape has the origin of what it stands for.
template <typename Escape>
void append_escaped(MarkedText& out, const MarkedText& text, Escape escape) {
  std::size_t plain = 0;
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t begin = at;
    const std::string escaped = escape(next_code_point(text.bytes(), at));
    if (escaped.empty()) continue;
    out.append(text, plain, begin);
    out.append(escaped, text.origin_at(begin));
    plain = at;
  }
  out.append(text, plain, text.size());
}

MarkedText text_repr(const MarkedText& text) {
  const bool has_single = text.bytes().find('\'') != std::string::npos;
  const bool has_double = text.bytes().find('"') != std::string::npos;
  const char32_t quote = has_single && !has_double ? U'"' : U'\'';
  const std::string_view mark = quote == U'"' ? "\"" : "'";
  MarkedText out(text.safe() ? "Markup(" : "");
  out.append(mark, kFromTemplate);
  append_escaped(out, text, [&](char32_t c) -> std::string {
    if (c == quote || c == '\\') return std::string("\\") + static_cast<char>(c);
    if (c == '\n') return "\\n";
    if (c == '\r') return "\\r";
    if (c == '\t') return "\\t";
    if (c >= 0x20 && c < 0x7F) return "";
    if (is_printable(c)) return "";
    return c < 0x100     ? formatted("\\x%02x", c)
           : c < 0x10000 ? formatted("\\u%04x", c)
                         : formatted("\\U%08x", c);
  });
  out.append(mark, kFromTemplate);
  if (text.safe()) out.append(")", kFromTemplate);
  return out;
}

MarkedText sequence_repr(const Sequence& sequence) {
  using Kind = Sequence::Kind;
  if (sequence.kind == Kind::kIterator || sequence.kind == Kind::kRange)
    throw RenderError("a generator or range has no text; make a list of it, or join it");
  const bool tuple = sequence.kind == Kind::kTuple;
  const bool view = sequence.kind != Kind::kList && !tuple;
  MarkedText out;
  if (view) {
    const char* name = sequence.kind == Kind::kKeys     ? "dict_keys("
                       : sequence.kind == Kind::kValues ? "dict_values("
                                                        : "dict_items(";
    out.append(name, kFromTemplate);
  }
  out.append(tuple ? "(" : "[", kFromTemplate);
  for (std::size_t i = 0; i < sequence.items.size(); ++i) {
    if (i > 0) out.append(", ", kFromTemplate);
    out.append(to_repr(sequence.items[i]));
  }
  if (tuple && sequence.items.size() == 1) out.append(",", kFromTemplate);
  out.append(tuple ? ")" : "]", kFromTemplate);
  if (view) out.append(")", kFromTemplate);
  return out;
}

std::string json_escape(char32_t c, bool ensure_ascii) {
  switch (c) {
    case '"': return "\\\"";
    case '\\': return "\\\\";
    case '\n': return "\\n";
    case '\r': return "\\r";
    case '\t': return "\\t";
    case '\b': return "\\b";
    case '\f': return "\\f";
    default: break;
  }
  if (c < 0x20) return formatted("\\u%04x", c);
  if (!ensure_ascii || c < 0x7F) return "";
  if (c == 0x7F) return "";
  if (c < 0x10000) return formatted("\\u%04x", c);
  const char32_t rest = c - 0x10000;
  return formatted("\\u%04x", 0xD800 + (rest >> 10)) + formatted("\\u%04x", 0xDC00 + (rest & 0x3FF));
}

class JsonWriter {
 public:
  explicit JsonWriter(const JsonStyle& style) : style_(style) {}

  void write(const Value& value) {
    if (const MarkedText* text = value.as_text()) return string(*text);
    if (const Dict* dict = value.as_dict()) return object(*dict);
    if (const Sequence* sequence = value.as_sequence();
        sequence != nullptr &&
        (sequence->kind == Sequence::Kind::kList || sequence->kind == Sequence::Kind::kTuple))
      return array(sequence->items);
    plain(scalar(value));
  }

  MarkedText take() { return std::move(out_); }

 private:
  void plain(std::string_view text) { out_.append(text, kFromTemplate); }

  static std::string scalar(const Value& value) {
    if (value.is_none()) return "null";
    if (value.is_bool()) return value.truth() ? "true" : "false";
    if (value.is_integer()) return std::to_string(value.integer());
    if (value.is_float()) {
      const double number = value.number();
      if (std::isnan(number)) return "NaN";
      if (std::isinf(number)) return number > 0 ? "Infinity" : "-Infinity";
      return float_text(number);
    }
    throw RenderError("a value of type " + value.type_name() + " has no JSON form");
  }

  void string(const MarkedText& text) {
    plain("\"");
    append_escaped(out_, text, [&](char32_t c) { return json_escape(c, style_.ensure_ascii); });
    plain("\"");
  }

  void line_break() {
    if (!style_.indent) return;
    std::string text = "\n";
    for (std::size_t level = 0; level < level_; ++level) text += *style_.indent;
    plain(text);
  }

  void array(const std::vector<Value>& items) {
    if (items.empty()) return plain("[]");
    plain("[");
    ++level_;
    for (std::size_t i = 0; i < items.size(); ++i) {
      if (i > 0) plain(style_.item_separator);
      line_break();
      write(items[i]);
    }
    --level_;
    line_break();
    plain("]");
  }

  void object(const Dict& dict) {
    if (dict.members.empty()) return plain("{}");
    std::vector<const std::pair<Value, Value>*> members;
    members.reserve(dict.members.size());
    for (const auto& member : dict.members) members.push_back(&member);
    if (style_.sort_keys)
      std::stable_sort(members.begin(), members.end(),
                       [](const auto* a, const auto* b) { return less(a->first, b->first); });
    plain("{");
    ++level_;
    bool first = true;
    for (const auto* member : members) {
      if (!first) plain(style_.item_separator);
      first = false;
      line_break();
      const MarkedText* key = member->first.as_text();
      string(key != nullptr ? *key : MarkedText(scalar(member->first)));
      plain(style_.key_separator);
      write(member->second);
    }
    --level_;
    line_break();
    plain("}");
  }

  const JsonStyle& style_;
  MarkedText out_;
  std::size_t level_ = 0;
};

}  // namespace

std::string float_text(double value) {
  if (std::isnan(value)) return "nan";
  if (std::isinf(value)) return value > 0 ? "inf" : "-inf";
  std::array<char, 64> buffer{};
  const auto end =
      std::to_chars(buffer.data(), buffer.data() + buffer.size(), value, std::chars_format::scientific);
  const std::string text(buffer.data(), end.ptr);
  const std::size_t e = text.find('e');
  const int exponent = std::stoi(text.substr(e + 1));
  const bool negative = text.front() == '-';
  std::string digits;
  for (const char c : text.substr(0, e))
    if (c >= '0' && c <= '9') digits += c;
  std::string out;
  if (exponent < -4 || exponent >= 16) {
    out = digits.substr(0, 1) + (digits.size() > 1 ? "." + digits.substr(1) : "") + "e" +
          (exponent < 0 ? "-" : "+") + (std::abs(exponent) < 10 ? "0" : "") +
          std::to_string(std::abs(exponent));
  } else if (exponent < 0) {
    out = "0." + std::string(static_cast<std::size_t>(-exponent - 1), '0') + digits;
  } else {
    const auto whole = static_cast<std::size_t>(exponent) + 1;
    if (digits.size() < whole) digits.append(whole - digits.size(), '0');
    out = digits.substr(0, whole) + "." + (digits.size() > whole ? digits.substr(whole) : "0");
  }
  return (negative ? "-" : "") + out;
}

MarkedText to_repr(const Value& value) {
  if (const MarkedText* text = value.as_text()) return text_repr(*text);
  if (value.is_undefined()) return MarkedText("Undefined");
  return to_text(value);
}

MarkedText to_text(const Value& value) {
  if (const MarkedText* text = value.as_text()) return *text;
  if (value.is_undefined()) return {};
  if (value.is_none()) return MarkedText("None");
  if (value.is_bool()) return MarkedText(value.truth() ? "True" : "False");
  if (value.is_integer()) return MarkedText(std::to_string(value.integer()));
  if (value.is_float()) return MarkedText(float_text(value.number()));
  if (const Sequence* sequence = value.as_sequence()) return sequence_repr(*sequence);
  if (const Dict* dict = value.as_dict()) {
    MarkedText out("{");
    for (std::size_t i = 0; i < dict->members.size(); ++i) {
      if (i > 0) out.append(", ", kFromTemplate);
      out.append(to_repr(dict->members[i].first));
      out.append(": ", kFromTemplate);
      out.append(to_repr(dict->members[i].second));
    }
    out.append("}", kFromTemplate);
    return out;
  }
  throw RenderError("a value of type " + value.type_name() + " has no text");
}

MarkedText html_escaped(const MarkedText& text) {
  if (text.safe()) return text;
  MarkedText out;
  append_escaped(out, text, [](char32_t c) -> std::string {
    switch (c) {
      case '&': return "&amp;";
      case '<': return "&lt;";
      case '>': return "&gt;";
      case '"': return "&#34;";
      case '\'': return "&#39;";
      default: return "";
    }
  });
  out.set_safe(true);
  return out;
}

MarkedText escaped_for(const MarkedText& whole, const MarkedText& part) {
  return whole.safe() ? html_escaped(part) : part;
}

MarkedText to_json(const Value& value, const JsonStyle& style) {
  JsonWriter writer(style);
  writer.write(value);
  return writer.take();
}

}  // namespace lorikeet::text::jinja
