#include "text/jinja/methods.h"

#include <algorithm>
#include <array>

#include "text/jinja/characters.h"
#include "text/jinja/functions.h"
#include "text/jinja/interpreter.h"
#include "text/jinja/output.h"
#include "text/jinja/text_functions.h"
#include "text/unicode.h"

namespace lorikeet::text::jinja {
namespace {

using Function = Native::Function;
struct Method {
  std::string_view name;
  Function function;
};

const MarkedText& text_argument(ArgumentReader& read, std::string_view name) {
  const MarkedText* text = read.required(name).as_text();
  if (text == nullptr)
    throw RenderError(read.function() + ": expected '" + std::string(name) + "' to be a string");
  return *text;
}

Value list_of(std::vector<MarkedText> parts, Budget& budget) {
  budget.use(parts.size());
  std::vector<Value> items;
  items.reserve(parts.size());
  for (MarkedText& part : parts) items.emplace_back(std::move(part));
  return Value::list(std::move(items));
}

template <bool kLeft, bool kRight>
Value strip(const Value& self, const Arguments& arguments, Budget&) {
  ArgumentReader read("strip", arguments);
  const Value* characters = read.maybe("chars");
  read.finish();
  if (characters == nullptr || characters->is_none()) return stripped(*self.as_text(), {}, kLeft, kRight);
  if (!characters->is_text()) throw RenderError("strip: expected a string or None");
  return stripped(*self.as_text(), characters->as_text()->bytes(), kLeft, kRight);
}

template <bool kFromRight>
Value split(const Value& self, const Arguments& arguments, Budget& budget) {
  ArgumentReader read("split", arguments);
  const Value* separator = read.maybe("sep");
  const std::int64_t limit = read.integer("maxsplit", -1);
  read.finish();
  if (separator == nullptr || separator->is_none())
    return list_of(split_words(*self.as_text(), limit, kFromRight), budget);
  if (!separator->is_text()) throw RenderError("split: expected a string or None");
  if (separator->as_text()->empty()) throw RenderError("split: empty separator");
  return list_of(split_at(*self.as_text(), separator->as_text()->bytes(), limit, kFromRight), budget);
}

Value splitlines(const Value& self, const Arguments& arguments, Budget& budget) {
  ArgumentReader read("splitlines", arguments);
  const bool keep = read.flag("keepends", false);
  read.finish();
  return list_of(split_lines(*self.as_text(), keep), budget);
}

template <bool kFromRight>
Value partition(const Value& self, const Arguments& arguments, Budget&) {
  ArgumentReader read("partition", arguments);
  const MarkedText& separator = text_argument(read, "sep");
  read.finish();
  if (separator.empty()) throw RenderError("partition: empty separator");
  const MarkedText& text = *self.as_text();
  const std::size_t at =
      kFromRight ? text.bytes().rfind(separator.bytes()) : text.bytes().find(separator.bytes());
  if (at == std::string::npos)
    return kFromRight ? Value::tuple({text.emptied(), text.emptied(), text})
                      : Value::tuple({text, text.emptied(), text.emptied()});
  MarkedText found = separator;
  found.set_safe(text.safe());
  return Value::tuple(
      {text.substr(0, at), std::move(found), text.substr(at + separator.size(), text.size())});
}

template <bool kStart>
Value touches(const Value& self, const Arguments& arguments, Budget&) {
  ArgumentReader read(kStart ? "startswith" : "endswith", arguments);
  const Value& parts = read.required("prefix");
  read.finish();
  const std::string& text = self.as_text()->bytes();
  const auto matches = [&](const Value& part) {
    if (!part.is_text()) throw RenderError("startswith and endswith take a string or a tuple of strings");
    const std::string& bytes = part.as_text()->bytes();
    return kStart ? text.starts_with(bytes) : text.ends_with(bytes);
  };
  const Sequence* tuple = parts.as_sequence();
  if (tuple == nullptr || tuple->kind != Sequence::Kind::kTuple) return matches(parts);
  return std::any_of(tuple->items.begin(), tuple->items.end(), matches);
}

Value replace(const Value& self, const Arguments& arguments, Budget& budget) {
  ArgumentReader read("replace", arguments);
  const MarkedText& from = text_argument(read, "old");
  const MarkedText to = escaped_for(*self.as_text(), text_argument(read, "new"));
  const std::int64_t limit = read.integer("count", -1);
  read.finish();
  const std::size_t often = self.as_text()->size() / std::max<std::size_t>(from.size(), 1) + 1;
  budget.make(self.as_text()->size());
  budget.make(often * to.size());
  return replaced(*self.as_text(), from.bytes(), to, limit);
}

template <MarkedText (*kChange)(const MarkedText&)>
Value changed(const Value& self, const Arguments& arguments, Budget& budget) {
  ArgumentReader("this method", arguments).finish();
  budget.make(self.as_text()->size());
  return kChange(*self.as_text());
}

template <bool kFromRight, bool kMustBeThere>
Value find(const Value& self, const Arguments& arguments, Budget&) {
  ArgumentReader read("find", arguments);
  const MarkedText& part = text_argument(read, "sub");
  read.finish();
  const std::string& text = self.as_text()->bytes();
  const std::size_t at = kFromRight ? text.rfind(part.bytes()) : text.find(part.bytes());
  if (at != std::string::npos) return count_characters(std::string_view(text).substr(0, at));
  if (kMustBeThere) throw RenderError("index: substring not found");
  return std::int64_t{-1};
}

Value count_text(const Value& self, const Arguments& arguments, Budget&) {
  ArgumentReader read("count", arguments);
  const MarkedText& part = text_argument(read, "sub");
  read.finish();
  const std::string& text = self.as_text()->bytes();
  if (part.empty()) return count_characters(text) + 1;
  std::int64_t count = 0;
  for (std::size_t at = text.find(part.bytes()); at != std::string::npos;
       at = text.find(part.bytes(), at + part.size()))
    ++count;
  return count;
}

Value join(const Value& self, const Arguments& arguments, Budget& budget) {
  ArgumentReader read("join", arguments);
  const Value& parts = read.required("iterable");
  read.finish();
  MarkedText out = self.as_text()->emptied();
  bool first = true;
  for (const Value& part : elements(parts, budget)) {
    if (!part.is_text()) throw RenderError("join: expected strings, got '" + part.type_name() + "'");
    if (!first) out.append(*self.as_text());
    first = false;
    out.append(escaped_for(*self.as_text(), *part.as_text()));
    budget.make(self.as_text()->size() + part.as_text()->size());
  }
  return out;
}

template <bool (*kIs)(char32_t), bool kOfEmpty = false>
Value all_are(const Value& self, const Arguments& arguments, Budget&) {
  ArgumentReader("this method", arguments).finish();
  const std::string& text = self.as_text()->bytes();
  for (std::size_t at = 0; at < text.size();)
    if (!kIs(next_code_point(text, at))) return false;
  return kOfEmpty || !text.empty();
}

bool is_alnum(char32_t c) { return is_letter(c) || is_numeric_character(c); }

template <bool kUpper>
Value is_case(const Value& self, const Arguments& arguments, Budget&) {
  ArgumentReader("isupper and islower", arguments).finish();
  const std::string& text = self.as_text()->bytes();
  bool any = false;
  for (std::size_t at = 0; at < text.size();) {
    const char32_t c = next_code_point(text, at);
    if (kUpper ? is_lower(c) : is_upper(c)) return false;
    any = any || (kUpper ? is_upper(c) : is_lower(c));
  }
  return any;
}

template <bool kPrefix>
Value without(const Value& self, const Arguments& arguments, Budget&) {
  ArgumentReader read("removeprefix", arguments);
  const MarkedText& part = text_argument(read, "prefix");
  read.finish();
  const MarkedText& text = *self.as_text();
  if (kPrefix && text.bytes().starts_with(part.bytes())) return text.substr(part.size(), text.size());
  if (!kPrefix && text.bytes().ends_with(part.bytes())) return text.substr(0, text.size() - part.size());
  return text;
}

enum class Side : std::uint8_t { kLeft, kRight, kCenter };

template <Side kSide>
Value justify(const Value& self, const Arguments& arguments, Budget& budget) {
  ArgumentReader read("ljust", arguments);
  const std::int64_t width = read.required("width").integer();
  const Value* fill = read.maybe("fillchar");
  read.finish();
  const MarkedText& text = *self.as_text();
  const std::int64_t missing = std::max<std::int64_t>(width - count_characters(text.bytes()), 0);
  if (fill != nullptr && !fill->is_text()) throw RenderError("the fill character must be a string");
  const MarkedText filling = fill != nullptr ? escaped_for(text, *fill->as_text()) : MarkedText(" ");
  if (count_characters(filling.bytes()) != 1)
    throw RenderError("the fill character must be exactly one character long");
  budget.make(static_cast<std::size_t>(missing) + text.size());
  // Python puts the odd one of a centred text's blanks on the left where the width is odd.
  const std::int64_t left = kSide == Side::kRight    ? missing
                            : kSide == Side::kCenter ? missing / 2 + (missing & width & 1)
                                                     : 0;
  return padded(text, left, missing - left, filling.bytes());
}

Value zfill(const Value& self, const Arguments& arguments, Budget& budget) {
  ArgumentReader read("zfill", arguments);
  const std::int64_t width = read.required("width").integer();
  read.finish();
  const MarkedText& text = *self.as_text();
  const std::int64_t missing = std::max<std::int64_t>(width - count_characters(text.bytes()), 0);
  budget.make(static_cast<std::size_t>(missing) + text.size());
  const bool sign = !text.empty() && (text.bytes()[0] == '-' || text.bytes()[0] == '+');
  MarkedText out = text.substr(0, sign ? 1 : 0);
  out.append(padded(text.substr(sign ? 1 : 0, text.size()), missing, 0, "0"));
  return out;
}

// "{}", "{0}" and "{name}" of str.format.
Value format(const Value& self, const Arguments& arguments, Budget& budget) {
  const MarkedText& text = *self.as_text();
  const std::string& bytes = text.bytes();
  MarkedText out = text.emptied();
  std::size_t automatic = 0;
  for (std::size_t at = 0; at < bytes.size();) {
    const char c = bytes[at];
    if ((c == '{' || c == '}') && at + 1 < bytes.size() && bytes[at + 1] == c) {
      out.append(text, at, at + 1);
      at += 2;
    } else if (c == '{') {
      const std::size_t end = bytes.find('}', at);
      if (end == std::string::npos) throw RenderError("format: expected '}' before end of string");
      const std::string field = bytes.substr(at + 1, end - at - 1);
      const Value* value = nullptr;
      if (field.find_first_not_of("0123456789") == std::string::npos && field.size() < 6) {
        const std::size_t index = field.empty() ? automatic++ : std::stoul(field);
        if (index < arguments.positional.size()) value = &arguments.positional[index];
      }
      for (const auto& [name, named] : arguments.named)
        if (name == field) value = &named;
      if (value == nullptr)
        throw RenderError("format: no argument for the field '{" + field +
                          "}'; formats and attributes in fields aren't supported");
      out.append(escaped_for(text, to_text(*value)));
      at = end + 1;
    } else if (c == '}') {
      throw RenderError("format: single '}' encountered");
    } else {
      const std::size_t end = std::min(bytes.find_first_of("{}", at), bytes.size());
      out.append(text, at, end);
      at = end;
    }
  }
  budget.make(out.size());
  return out;
}

constexpr std::array<Method, 38> kTextMethods{{{"strip", strip<true, true>},
                                               {"lstrip", strip<true, false>},
                                               {"rstrip", strip<false, true>},
                                               {"split", split<false>},
                                               {"rsplit", split<true>},
                                               {"splitlines", splitlines},
                                               {"partition", partition<false>},
                                               {"rpartition", partition<true>},
                                               {"startswith", touches<true>},
                                               {"endswith", touches<false>},
                                               {"replace", replace},
                                               {"upper", changed<upper_case>},
                                               {"lower", changed<lower_case>},
                                               {"title", changed<title_case>},
                                               {"capitalize", changed<capitalized>},
                                               {"swapcase", changed<swapped_case>},
                                               {"find", find<false, false>},
                                               {"rfind", find<true, false>},
                                               {"index", find<false, true>},
                                               {"rindex", find<true, true>},
                                               {"count", count_text},
                                               {"join", join},
                                               {"isspace", all_are<is_space>},
                                               {"isalpha", all_are<is_letter>},
                                               {"isdecimal", all_are<is_decimal>},
                                               {"isdigit", all_are<is_digit>},
                                               {"isnumeric", all_are<is_numeric_character>},
                                               {"isalnum", all_are<is_alnum>},
                                               {"isprintable", all_are<is_printable, true>},
                                               {"isupper", is_case<true>},
                                               {"islower", is_case<false>},
                                               {"removeprefix", without<true>},
                                               {"removesuffix", without<false>},
                                               {"ljust", justify<Side::kLeft>},
                                               {"rjust", justify<Side::kRight>},
                                               {"center", justify<Side::kCenter>},
                                               {"zfill", zfill},
                                               {"format", format}}};

template <Sequence::Kind kKind>
Value view(const Value& self, const Arguments& arguments, Budget& budget) {
  ArgumentReader("keys, values and items", arguments).finish();
  const Dict& dict = *self.as_dict();
  budget.use(dict.members.size());
  auto out = std::make_shared<Sequence>();
  out->kind = kKind;
  for (const auto& [key, value] : dict.members) {
    if (kKind == Sequence::Kind::kItems) {
      out->items.push_back(Value::tuple({key, value}));
    } else {
      out->items.push_back(kKind == Sequence::Kind::kKeys ? key : value);
    }
  }
  out->depth = dict.depth + 1;
  return std::shared_ptr<const Sequence>(std::move(out));
}

Value get(const Value& self, const Arguments& arguments, Budget&) {
  ArgumentReader read("get", arguments);
  const Value& key = read.required("key");
  const Value* fallback = read.maybe("default");
  read.finish();
  require_hashable(key);
  if (const Value* found = self.as_dict()->find(key)) return *found;
  return fallback != nullptr ? *fallback : Value(None{});
}

Value copy(const Value& self, const Arguments& arguments, Budget&) {
  ArgumentReader("copy", arguments).finish();
  return self;
}

constexpr std::array<Method, 5> kDictMethods{{{"get", get},
                                              {"keys", view<Sequence::Kind::kKeys>},
                                              {"values", view<Sequence::Kind::kValues>},
                                              {"items", view<Sequence::Kind::kItems>},
                                              {"copy", copy}}};
constexpr std::array<std::string_view, 6> kDictUnsafe{"clear",      "pop",    "popitem",
                                                      "setdefault", "update", "fromkeys"};

template <bool kCount>
Value occurrences(const Value& self, const Arguments& arguments, Budget& budget) {
  ArgumentReader read("index", arguments);
  const Value& wanted = read.required("value");
  read.finish();
  const std::vector<Value>& items = self.as_sequence()->items;
  budget.use(items.size());
  const auto is_wanted = [&](const Value& item) { return equal(item, wanted); };
  if (kCount) return static_cast<std::int64_t>(std::count_if(items.begin(), items.end(), is_wanted));
  const auto found = std::find_if(items.begin(), items.end(), is_wanted);
  if (found == items.end()) throw RenderError("index: the value is not in the list");
  return static_cast<std::int64_t>(found - items.begin());
}

constexpr std::array<Method, 3> kListMethods{
    {{"index", occurrences<false>}, {"count", occurrences<true>}, {"copy", copy}}};
constexpr std::array<std::string_view, 8> kListUnsafe{"append", "clear", "pop",    "reverse",
                                                      "insert", "sort",  "extend", "remove"};

template <typename Methods>
const Method* find_method(const Methods& methods, std::string_view name) {
  for (const Method& method : methods)
    if (method.name == name) return &method;
  return nullptr;
}

template <typename Names>
bool is_among(const Names& names, std::string_view name) {
  return std::find(names.begin(), names.end(), name) != names.end();
}

Value forbidden(const Value& value, std::string_view name) {
  return Value::undefined("access to '" + std::string(name) + "' of a " + value.type_name() +
                              " is not allowed: templates change no values",
                          /*unsafe=*/true);
}

}  // namespace

Value Native::call(Interpreter& interpreter, Arguments arguments) {
  Budget& budget = interpreter.budget();
  if (const MarkedText* text = self_.as_text()) {
    // A search may take as many steps as the product of both lengths.
    std::size_t longest = 0;
    for (const Value& argument : arguments.positional)
      if (const MarkedText* part = argument.as_text()) longest = std::max(longest, part->size());
    budget.use(text->size() / 1024 + text->size() * longest / (1U << 16U));
  }
  return function_(self_, arguments, budget);
}

Value method_of(const Value& value, std::string_view name) {
  const Method* method = nullptr;
  bool unsafe = false;
  if (value.is_text()) {
    method = find_method(kTextMethods, name);
  } else if (value.as_dict() != nullptr) {
    method = find_method(kDictMethods, name);
    unsafe = is_among(kDictUnsafe, name);
  } else if (const Sequence* sequence = value.as_sequence();
             sequence != nullptr && sequence->indexable() && sequence->kind != Sequence::Kind::kRange) {
    const bool list = sequence->kind == Sequence::Kind::kList;
    if (list || name != "copy") method = find_method(kListMethods, name);
    unsafe = list && is_among(kListUnsafe, name);
  }
  if (unsafe || (name.starts_with("__") && name.ends_with("__"))) return forbidden(value, name);
  if (method == nullptr) return Value::undefined("no method '" + std::string(name) + "'");
  return std::shared_ptr<Object>(std::make_shared<Native>(std::string(name), method->function, value));
}

}  // namespace lorikeet::text::jinja
