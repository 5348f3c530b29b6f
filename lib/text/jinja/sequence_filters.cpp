#include <algorithm>
#include <array>

#include "text/jinja/functions.h"
#include "text/jinja/text_functions.h"

namespace lorikeet::text::jinja {
namespace {

using Filter = Value (*)(const Value& value, const Arguments& arguments, Budget& budget);

Value without_case(const Value& value, bool case_sensitive) {
  const MarkedText* text = value.as_text();
  return text == nullptr || case_sensitive ? value : Value(lower_case(*text));
}

// An attribute's value as a key for sorting; a comma in the attribute makes a list of several.
Value sort_key(const Value& item, const Value* attribute, bool case_sensitive) {
  if (attribute == nullptr || attribute->is_none()) return without_case(item, case_sensitive);
  const MarkedText* path = attribute->as_text();
  if (path == nullptr) return without_case(at_path(item, *attribute), case_sensitive);
  std::vector<Value> keys;
  for (const MarkedText& part : split_at(*path, ",", -1, false))
    keys.push_back(without_case(at_path(item, part), case_sensitive));
  return Value::list(std::move(keys));
}

using Keyed = std::pair<Value, Value>;

std::vector<Value> sorted(std::vector<Keyed> keyed, bool reverse, Budget& budget) {
  budget.use(keyed.size() * 8);
  std::stable_sort(keyed.begin(), keyed.end(), [&](const Keyed& a, const Keyed& b) {
    return reverse ? less(b.first, a.first) : less(a.first, b.first);
  });
  std::vector<Value> items;
  items.reserve(keyed.size());
  for (Keyed& entry : keyed) items.push_back(std::move(entry.second));
  return items;
}

Value sort(const Value& value, const Arguments& arguments, Budget& budget) {
  ArgumentReader read("sort", arguments);
  const bool reverse = read.flag("reverse", false), case_sensitive = read.flag("case_sensitive", false);
  const Value* attribute = read.maybe("attribute");
  read.finish();
  std::vector<Keyed> keyed;
  for (const Value& item : elements(value, budget))
    keyed.emplace_back(sort_key(item, attribute, case_sensitive), item);
  return Value::list(sorted(std::move(keyed), reverse, budget));
}

Value dictsort(const Value& value, const Arguments& arguments, Budget& budget) {
  ArgumentReader read("dictsort", arguments);
  const bool case_sensitive = read.flag("case_sensitive", false);
  const Value* by = read.maybe("by");
  const bool reverse = read.flag("reverse", false);
  read.finish();
  const std::string what = by == nullptr ? "key" : by->is_text() ? by->as_text()->bytes() : "";
  if (what != "key" && what != "value") throw RenderError("dictsort: sorts by either \"key\" or \"value\"");
  const Dict* dict = value.as_dict();
  if (dict == nullptr) throw RenderError("dictsort: expected a mapping, got '" + value.type_name() + "'");
  std::vector<Keyed> keyed;
  keyed.reserve(dict->members.size());
  for (const auto& [key, member] : dict->members)
    keyed.emplace_back(without_case(what == "key" ? key : member, case_sensitive),
                       Value::tuple({key, member}));
  return Value::list(sorted(std::move(keyed), reverse, budget));
}

Value unique(const Value& value, const Arguments& arguments, Budget& budget) {
  ArgumentReader read("unique", arguments);
  const bool case_sensitive = read.flag("case_sensitive", false);
  const Value* attribute = read.maybe("attribute");
  read.finish();
  std::vector<Value> seen, out;
  for (const Value& item : elements(value, budget)) {
    const Value key = without_case(attribute == nullptr ? item : at_path(item, *attribute), case_sensitive);
    require_hashable(key);
    budget.use(seen.size());
    if (std::any_of(seen.begin(), seen.end(), [&](const Value& other) { return equal(key, other); }))
      continue;
    seen.push_back(key);
    out.push_back(item);
  }
  return Value::iterator(std::move(out));
}

Value reverse(const Value& value, const Arguments& arguments, Budget& budget) {
  ArgumentReader("reverse", arguments).finish();
  std::vector<Value> items = elements(value, budget);
  std::reverse(items.begin(), items.end());
  if (!value.is_text()) return Value::iterator(std::move(items));
  MarkedText out = value.as_text()->emptied();
  for (const Value& item : items) out.append(*item.as_text());
  return out;
}

template <bool kMax>
Value extreme(const Value& value, const Arguments& arguments, Budget& budget) {
  ArgumentReader read(kMax ? "max" : "min", arguments);
  const bool case_sensitive = read.flag("case_sensitive", false);
  const Value* attribute = read.maybe("attribute");
  read.finish();
  const auto key_of = [&](const Value& item) {
    return without_case(attribute == nullptr ? item : at_path(item, *attribute), case_sensitive);
  };
  const std::vector<Value> items = elements(value, budget);
  if (items.empty()) return Value::undefined("no aggregated item, the sequence was empty");
  std::size_t best = 0;
  for (std::size_t i = 1; i < items.size(); ++i)
    if (kMax ? less(key_of(items[best]), key_of(items[i])) : less(key_of(items[i]), key_of(items[best])))
      best = i;
  return items[best];
}

Value sum(const Value& value, const Arguments& arguments, Budget& budget) {
  ArgumentReader read("sum", arguments);
  const Value* attribute = read.maybe("attribute");
  const Value* start = read.maybe("start");
  read.finish();
  if (start != nullptr && start->is_text()) throw RenderError("sum: texts are joined by the filter join");
  Value total = start != nullptr ? *start : Value(std::int64_t{0});
  for (const Value& item : elements(value, budget))
    total = arithmetic(
        "+", total, attribute != nullptr && !attribute->is_none() ? at_path(item, *attribute) : item, budget);
  return total;
}

// `name` and the arguments behind it: those of the filter or test that map, select and their like call.
std::string called_name(const Arguments& arguments, std::size_t at) {
  const MarkedText* name = arguments.positional[at].as_text();
  if (name == nullptr) throw RenderError("expected the name of a filter or test");
  return name->bytes();
}

Arguments arguments_behind(const Arguments& arguments, std::size_t at) {
  Arguments rest{.named = arguments.named};
  rest.positional.assign(arguments.positional.begin() + static_cast<std::ptrdiff_t>(at),
                         arguments.positional.end());
  return rest;
}

Value map(const Value& value, const Arguments& arguments, Budget& budget) {
  std::vector<Value> out;
  if (!value.truth()) return Value::iterator({});  // none, too, as Jinja has it
  if (arguments.positional.empty()) {
    ArgumentReader read("map", arguments);
    const Value attribute = read.required("attribute");
    const Value* otherwise = read.maybe("default");
    read.finish();
    for (const Value& item : elements(value, budget)) {
      Value found = at_path(item, attribute);
      if (found.is_undefined() && otherwise != nullptr) found = *otherwise;
      out.push_back(std::move(found));
    }
    return Value::iterator(std::move(out));
  }
  const std::string name = called_name(arguments, 0);
  const Arguments rest = arguments_behind(arguments, 1);
  for (const Value& item : elements(value, budget)) out.push_back(apply_filter(name, item, rest, budget));
  return Value::iterator(std::move(out));
}

template <bool kAttribute, bool kKeep>
Value select(const Value& value, const Arguments& arguments, Budget& budget) {
  if (!value.truth()) return Value::iterator({});
  const std::size_t at = kAttribute ? 1 : 0;
  if (arguments.positional.size() < at) throw RenderError("missing parameter for attribute name");
  const bool tested = arguments.positional.size() > at;
  const std::string name = tested ? called_name(arguments, at) : "";
  const Arguments rest = tested ? arguments_behind(arguments, at + 1) : Arguments{};
  std::vector<Value> out;
  for (const Value& item : elements(value, budget)) {
    const Value subject = kAttribute ? at_path(item, arguments.positional[0]) : item;
    const bool holds = tested ? apply_test(name, subject, rest, budget) : subject.truth();
    if (holds == kKeep) out.push_back(item);
  }
  return Value::iterator(std::move(out));
}

struct Entry {
  std::string_view name;
  Filter function;
};
constexpr std::array<Entry, 12> kFilters{{{"sort", sort},
                                          {"dictsort", dictsort},
                                          {"unique", unique},
                                          {"reverse", reverse},
                                          {"min", extreme<false>},
                                          {"max", extreme<true>},
                                          {"sum", sum},
                                          {"map", map},
                                          {"select", select<false, true>},
                                          {"reject", select<false, false>},
                                          {"selectattr", select<true, true>},
                                          {"rejectattr", select<true, false>}}};

}  // namespace

bool has_sequence_filter(std::string_view name) {
  return std::any_of(kFilters.begin(), kFilters.end(),
                     [&](const Entry& entry) { return entry.name == name; });
}

Value apply_sequence_filter(std::string_view name, const Value& value, const Arguments& arguments,
                            Budget& budget) {
  for (const Entry& entry : kFilters)
    if (entry.name == name) return entry.function(value, arguments, budget);
  throw RenderError("the filter '" + std::string(name) + "' isn't supported");
}

Value at_path(const Value& value, const Value& path) {
  if (path.is_none()) return value;
  const MarkedText* text = path.as_text();
  if (text == nullptr) return item_of(value, path);
  Value found = value;
  for (const MarkedText& part : split_at(*text, ".", -1, false)) {
    const std::string& name = part.bytes();
    const bool index =
        !name.empty() && name.size() < 10 && name.find_first_not_of("0123456789") == std::string::npos;
    found = item_of(found, index ? Value(std::int64_t{std::stol(name)}) : Value(part));
  }
  return found;
}

}  // namespace lorikeet::text::jinja
