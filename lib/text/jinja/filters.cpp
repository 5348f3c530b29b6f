#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <optional>

#include "text/jinja/characters.h"
#include "text/jinja/functions.h"
#include "text/jinja/output.h"
#include "text/jinja/text_functions.h"

namespace lorikeet::text::jinja {
namespace {

using Filter = Value (*)(const Value& value, const Arguments& arguments, Budget& budget);

[[noreturn]] void fail_undefined(const Value& value) { throw RenderError(*value.as_undefined()->what); }

template <MarkedText (*kChange)(const MarkedText&)>
Value changed(const Value& value, const Arguments& arguments, Budget& budget) {
  ArgumentReader("this filter", arguments).finish();
  const MarkedText text = to_text(value);
  budget.make(text.size());
  return kChange(text);
}

Value trim(const Value& value, const Arguments& arguments, Budget& budget) {
  ArgumentReader read("trim", arguments);
  const Value* characters = read.maybe("chars");
  read.finish();
  const MarkedText text = to_text(value);
  budget.make(text.size());
  if (characters == nullptr || characters->is_none()) return stripped(text, {}, true, true);
  if (!characters->is_text()) throw RenderError("trim: expected a string");
  return stripped(text, characters->as_text()->bytes(), true, true);
}

Value string(const Value& value, const Arguments& arguments, Budget& budget) {
  ArgumentReader("string", arguments).finish();
  if (value.is_text()) return value;
  MarkedText text = to_text(value);
  budget.make(text.size());
  return text;
}

Value safe(const Value& value, const Arguments& arguments, Budget& budget) {
  ArgumentReader("safe", arguments).finish();
  MarkedText text = to_text(value);
  budget.make(text.size());
  text.set_safe(true);
  return text;
}

Value count(const Value& value, const Arguments& arguments, Budget&) {
  ArgumentReader("length", arguments).finish();
  return length(value);
}

Value fallback(const Value& value, const Arguments& arguments, Budget&) {
  ArgumentReader read("default", arguments);
  const Value* other = read.maybe("default_value");
  const bool boolean = read.flag("boolean", false);
  read.finish();
  if (value.is_undefined() || (boolean && !value.truth()))
    return other != nullptr ? *other : Value(MarkedText());
  return value;
}

Value list(const Value& value, const Arguments& arguments, Budget& budget) {
  ArgumentReader("list", arguments).finish();
  return Value::list(elements(value, budget));
}

Value first(const Value& value, const Arguments& arguments, Budget& budget) {
  ArgumentReader("first", arguments).finish();
  const std::vector<Value> items = elements(value, budget);
  return items.empty() ? Value::undefined("no first item, the sequence was empty") : items.front();
}

Value last(const Value& value, const Arguments& arguments, Budget& budget) {
  ArgumentReader("last", arguments).finish();
  const Sequence* sequence = value.as_sequence();
  if (sequence != nullptr && sequence->kind == Sequence::Kind::kIterator)
    throw RenderError("a generator can't be reversed; make a list of it before its last item is taken");
  if (value.is_undefined()) fail_undefined(value);
  if (value.is_text() && value.truth()) return item_of(value, std::int64_t{-1});
  const std::vector<Value> items = elements(value, budget);
  return items.empty() ? Value::undefined("no last item, the sequence was empty") : items.back();
}

Value join(const Value& value, const Arguments& arguments, Budget& budget) {
  ArgumentReader read("join", arguments);
  const Value* separator = read.maybe("d");
  const Value* attribute = read.maybe("attribute");
  read.finish();
  const MarkedText between = separator != nullptr ? to_text(*separator) : MarkedText();
  MarkedText out;
  bool begun = false;
  for (const Value& item : elements(value, budget)) {
    if (begun) out.append(between);
    begun = true;
    const MarkedText text =
        to_text(attribute != nullptr && !attribute->is_none() ? at_path(item, *attribute) : item);
    out.append(text);
    budget.make(between.size() + text.size());
  }
  return out;
}

Value replace(const Value& value, const Arguments& arguments, Budget& budget) {
  ArgumentReader read("replace", arguments);
  const MarkedText from = to_text(read.required("old"));
  const MarkedText to = to_text(read.required("new"));
  const Value* limit = read.maybe("count");
  read.finish();
  MarkedText text = to_text(value);
  text.set_safe(false);  // the filter, unlike the method, escapes nothing
  budget.make(text.size());
  budget.use(text.size() * from.size() / (1U << 16U));
  budget.make((text.size() / std::max<std::size_t>(from.size(), 1) + 1) * to.size());
  return replaced(text, from.bytes(), to, limit == nullptr || limit->is_none() ? -1 : limit->integer());
}

Value items(const Value& value, const Arguments& arguments, Budget& budget) {
  ArgumentReader("items", arguments).finish();
  if (value.is_undefined()) return Value::iterator({});
  const Dict* dict = value.as_dict();
  if (dict == nullptr) throw RenderError("items: can only get item pairs from a mapping");
  budget.use(dict->members.size());
  std::vector<Value> pairs;
  pairs.reserve(dict->members.size());
  for (const auto& [key, member] : dict->members) pairs.push_back(Value::tuple({key, member}));
  return Value::iterator(std::move(pairs));
}

Value tojson(const Value& value, const Arguments& arguments, Budget& budget) {
  ArgumentReader read("tojson", arguments);
  JsonStyle style;
  style.ensure_ascii = read.flag("ensure_ascii", false);
  if (const Value* indent = read.maybe("indent"); indent != nullptr && !indent->is_none()) {
    if (indent->is_text()) {
      style.indent = indent->as_text()->bytes();
    } else {
      const std::int64_t width = std::max<std::int64_t>(indent->integer(), 0);
      if (width > 100) throw RenderError("tojson: an indent of more than 100 blanks");
      style.indent = std::string(static_cast<std::size_t>(width), ' ');
    }
    style.item_separator = ",";
  }
  if (const Value* separators = read.maybe("separators"); separators != nullptr && !separators->is_none()) {
    const std::vector<Value> parts = elements(*separators, budget);
    if (parts.size() != 2 || !parts[0].is_text() || !parts[1].is_text())
      throw RenderError("tojson: expected two separators");
    style.item_separator = parts[0].as_text()->bytes();
    style.key_separator = parts[1].as_text()->bytes();
  }
  style.sort_keys = read.flag("sort_keys", false);
  read.finish();
  MarkedText text = to_json(value, style);
  budget.make(text.size());
  return text;
}

Value indent(const Value& value, const Arguments& arguments, Budget& budget) {
  ArgumentReader read("indent", arguments);
  const Value* width = read.maybe("width");
  const bool first_too = read.flag("first", false), blank_too = read.flag("blank", false);
  read.finish();
  if (value.is_undefined()) fail_undefined(value);
  if (!value.is_text()) throw RenderError("indent: expected a string, got '" + value.type_name() + "'");
  MarkedText by(std::string(4, ' '));
  if (width != nullptr && width->is_text()) {
    by = *width->as_text();
  } else if (width != nullptr) {
    const auto blanks = static_cast<std::size_t>(std::max<std::int64_t>(width->integer(), 0));
    budget.make(blanks);
    by = MarkedText(std::string(blanks, ' '));
  }
  MarkedText text = *value.as_text();
  if (by.safe() && !text.safe()) throw RenderError("indent: a width marked safe isn't supported");
  text.append("\n", kFromTemplate);
  const std::vector<MarkedText> lines = split_lines(text, false);
  MarkedText out = text.emptied();
  for (std::size_t i = 0; i < lines.size(); ++i) {
    if (i > 0) out.append("\n", kFromTemplate);
    budget.make(by.size() + lines[i].size());
    if (i == 0 ? first_too : blank_too || !lines[i].empty()) out.append(by);
    out.append(lines[i]);
  }
  return out;
}

// Python's int(text): white space around, a sign, digits with single underscores between.
std::optional<std::int64_t> integer_of(std::string_view text, int base) {
  const MarkedText bare = stripped(MarkedText(text), {}, true, true);
  std::string digits;
  for (std::size_t i = 0; i < bare.size(); ++i) {
    const char c = bare.bytes()[i];
    const bool between = c == '_' && i > 0 && i + 1 < bare.size() && bare.bytes()[i - 1] != '_';
    if (!between) digits += c;
  }
  if (!digits.empty() && digits[0] == '+') digits.erase(0, 1);
  std::int64_t value = 0;
  const auto end = std::from_chars(digits.data(), digits.data() + digits.size(), value, base);
  if (end.ec == std::errc::result_out_of_range) throw RenderError("an integer doesn't fit in 64 bits");
  if (digits.empty() || end.ec != std::errc() || end.ptr != digits.data() + digits.size())
    return std::nullopt;
  return value;
}

std::optional<double> float_of(const Value& value) {
  if (value.is_number()) return value.number();
  if (!value.is_text()) return std::nullopt;
  const MarkedText bare = stripped(*value.as_text(), {}, true, true);
  const char* begin = bare.bytes().data();
  const char* end = begin + bare.size();
  if (begin != end && *begin == '+') ++begin;
  double number = 0;
  const auto parsed = std::from_chars(begin, end, number);
  if (begin == end || parsed.ec != std::errc() || parsed.ptr != end) return std::nullopt;
  return number;
}

std::optional<std::int64_t> truncated(double number) {
  if (std::isnan(number) || std::isinf(number)) return std::nullopt;
  if (std::abs(number) >= 9.2e18) throw RenderError("an integer doesn't fit in 64 bits");
  return static_cast<std::int64_t>(number);
}

Value to_int(const Value& value, const Arguments& arguments, Budget&) {
  if (value.is_undefined()) fail_undefined(value);
  ArgumentReader read("int", arguments);
  const Value* otherwise = read.maybe("default");
  const std::int64_t base = read.integer("base", 10);
  read.finish();
  if (base < 2 || base > 36) throw RenderError("int: expected a base of 2 to 36");
  if (value.is_integer()) return value.integer();
  std::optional<std::int64_t> number;
  if (value.is_text()) number = integer_of(value.as_text()->bytes(), static_cast<int>(base));
  if (!number)
    if (const auto real = float_of(value)) number = truncated(*real);
  if (number) return *number;
  return otherwise != nullptr ? *otherwise : Value(std::int64_t{0});
}

Value to_float(const Value& value, const Arguments& arguments, Budget&) {
  if (value.is_undefined()) fail_undefined(value);
  ArgumentReader read("float", arguments);
  const Value* otherwise = read.maybe("default");
  read.finish();
  if (const auto number = float_of(value)) return *number;
  return otherwise != nullptr ? *otherwise : Value(0.0);
}

Value absolute(const Value& value, const Arguments& arguments, Budget&) {
  ArgumentReader("abs", arguments).finish();
  if (value.is_undefined()) fail_undefined(value);
  if (value.is_float()) return std::abs(value.number());
  return value.integer() < 0 ? negative(value) : Value(value.integer());
}

Value round_number(const Value& value, const Arguments& arguments, Budget&) {
  ArgumentReader read("round", arguments);
  const std::int64_t precision = read.integer("precision", 0);
  const Value* method = read.maybe("method");
  read.finish();
  if (!value.is_number()) throw RenderError("round: expected a number, got '" + value.type_name() + "'");
  const std::string how = method != nullptr && method->is_text() ? method->as_text()->bytes() : "common";
  if (precision < 0 || precision > 15) throw RenderError("round: expected a precision of 0 to 15");
  const double scale = std::pow(10.0, static_cast<double>(precision));
  if (how == "ceil") return std::ceil(value.number() * scale) / scale;
  if (how == "floor") return std::floor(value.number() * scale) / scale;
  if (how != "common") throw RenderError("round: expected common, ceil or floor");
  if (value.is_integer()) return value.integer();
  // To the decimal text nearest to the number, ties to even, as Python does it.
  std::array<char, 400> digits{};
  const auto end = std::to_chars(digits.data(), digits.data() + digits.size(), value.number(),
                                 std::chars_format::fixed, static_cast<int>(precision));
  double rounded = 0;
  std::from_chars(digits.data(), end.ptr, rounded);
  return rounded;
}

struct Entry {
  std::string_view name;
  Filter function;
};
constexpr std::array<Entry, 23> kFilters{{{"trim", trim},
                                          {"string", string},
                                          {"safe", safe},
                                          {"length", count},
                                          {"count", count},
                                          {"default", fallback},
                                          {"d", fallback},
                                          {"list", list},
                                          {"first", first},
                                          {"last", last},
                                          {"join", join},
                                          {"replace", replace},
                                          {"items", items},
                                          {"tojson", tojson},
                                          {"indent", indent},
                                          {"int", to_int},
                                          {"float", to_float},
                                          {"abs", absolute},
                                          {"round", round_number},
                                          {"upper", changed<upper_case>},
                                          {"lower", changed<lower_case>},
                                          {"capitalize", changed<capitalized>},
                                          {"title", changed<title_words>}}};

}  // namespace

bool has_filter(std::string_view name) {
  return std::any_of(kFilters.begin(), kFilters.end(),
                     [&](const Entry& entry) { return entry.name == name; }) ||
         has_sequence_filter(name);
}

Value apply_filter(std::string_view name, const Value& value, const Arguments& arguments, Budget& budget) {
  if (const MarkedText* text = value.as_text()) budget.use(text->size() / 1024);
  for (const Entry& entry : kFilters)
    if (entry.name == name) return entry.function(value, arguments, budget);
  return apply_sequence_filter(name, value, arguments, budget);
}

}  // namespace lorikeet::text::jinja
