#include <algorithm>
#include <array>

#include "text/jinja/characters.h"
#include "text/jinja/functions.h"
#include "text/jinja/text_functions.h"
#include "text/unicode.h"

namespace lorikeet::text::jinja {
namespace {

using Test = bool (*)(const Value& value, const Arguments& arguments, Budget& budget);

const Value& other(const Arguments& arguments) {
  if (arguments.positional.size() != 1 || !arguments.named.empty())
    throw RenderError("this test takes one argument");
  return arguments.positional[0];
}

bool is_sequence(const Value& value) {
  const Sequence* sequence = value.as_sequence();
  return value.is_text() || value.as_dict() != nullptr || value.is_undefined() ||
         (sequence != nullptr && sequence->indexable());
}

bool is_iterable(const Value& value) {
  return value.is_text() || value.as_dict() != nullptr || value.is_undefined() ||
         value.as_sequence() != nullptr;
}

// jinja2's Undefined has a __call__, which raises.
bool is_callable(const Value& value, const Arguments&, Budget&) {
  return value.is_undefined() || (value.as_object() != nullptr && value.as_object()->callable());
}

template <bool kUpper>
bool is_case(const Value& value, const Arguments&, Budget&) {
  bool any = false;
  const MarkedText* text = value.as_text();
  if (text == nullptr) throw RenderError("the tests upper and lower take a string");
  for (std::size_t at = 0; at < text->size();) {
    const char32_t c = next_code_point(text->bytes(), at);
    if (kUpper ? is_lower(c) : is_upper(c)) return false;
    any = any || (kUpper ? is_upper(c) : is_lower(c));
  }
  return any;
}

bool divisible(const Value& value, std::int64_t by) {
  if (!value.is_integer())
    throw RenderError("the tests even, odd and divisibleby take integers, got '" + value.type_name() + "'");
  if (by == 0) throw RenderError("division by zero");
  return by == -1 || value.integer() % by == 0;
}

bool same(const Value& a, const Value& b) {
  if (a.type_name() != b.type_name()) return false;
  if (a.is_none() || a.is_number()) return equal(a, b);
  if (a.as_object() != nullptr) return a.as_object() == b.as_object();
  throw RenderError("the test sameas is supported for none, booleans and numbers");
}

template <bool (*kHas)(std::string_view)>
bool is_name_of(const Value& value, const Arguments&, Budget&) {
  require_hashable(value);
  return value.is_text() && kHas(value.as_text()->bytes());
}

struct Entry {
  std::string_view name;
  Test function;
};
#define LORIKEET_TEST(expression)                                              \
  [](const Value& value, const Arguments& arguments, Budget& budget) -> bool { \
    (void)value;                                                               \
    (void)arguments;                                                           \
    (void)budget;                                                              \
    return expression;                                                         \
  }
constexpr std::array<Entry, 39> kTests{
    {{"defined", LORIKEET_TEST(!value.is_undefined())},
     {"undefined", LORIKEET_TEST(value.is_undefined())},
     {"none", LORIKEET_TEST(value.is_none())},
     {"boolean", LORIKEET_TEST(value.is_bool())},
     {"true", LORIKEET_TEST(value.is_bool() && value.truth())},
     {"false", LORIKEET_TEST(value.is_bool() && !value.truth())},
     {"integer", LORIKEET_TEST(value.is_integer() && !value.is_bool())},
     {"float", LORIKEET_TEST(value.is_float())},
     {"number", LORIKEET_TEST(value.is_number())},
     {"string", LORIKEET_TEST(value.is_text())},
     {"mapping", LORIKEET_TEST(value.as_dict() != nullptr)},
     {"iterable", LORIKEET_TEST(is_iterable(value))},
     {"sequence", LORIKEET_TEST(is_sequence(value))},
     {"callable", is_callable},
     {"even", LORIKEET_TEST(divisible(value, 2))},
     {"odd", LORIKEET_TEST(!divisible(value, 2))},
     {"divisibleby", LORIKEET_TEST(divisible(value, other(arguments).integer()))},
     {"upper", is_case<true>},
     {"lower", is_case<false>},
     {"in", LORIKEET_TEST(contains(other(arguments), value, budget))},
     {"sameas", LORIKEET_TEST(same(value, other(arguments)))},
     {"filter", is_name_of<has_filter>},
     {"test", is_name_of<has_test>},
     {"==", LORIKEET_TEST(equal(value, other(arguments)))},
     {"eq", LORIKEET_TEST(equal(value, other(arguments)))},
     {"equalto", LORIKEET_TEST(equal(value, other(arguments)))},
     {"!=", LORIKEET_TEST(!equal(value, other(arguments)))},
     {"ne", LORIKEET_TEST(!equal(value, other(arguments)))},
     {"<", LORIKEET_TEST(less(value, other(arguments)))},
     {"lt", LORIKEET_TEST(less(value, other(arguments)))},
     {"lessthan", LORIKEET_TEST(less(value, other(arguments)))},
     {"<=", LORIKEET_TEST(less(value, other(arguments)) || equal(value, other(arguments)))},
     {"le", LORIKEET_TEST(less(value, other(arguments)) || equal(value, other(arguments)))},
     {">", LORIKEET_TEST(less(other(arguments), value))},
     {"gt", LORIKEET_TEST(less(other(arguments), value))},
     {"greaterthan", LORIKEET_TEST(less(other(arguments), value))},
     {">=", LORIKEET_TEST(less(other(arguments), value) || equal(value, other(arguments)))},
     {"ge", LORIKEET_TEST(less(other(arguments), value) || equal(value, other(arguments)))},
     {"escaped", LORIKEET_TEST(value.is_text() && value.as_text()->safe())}}};
#undef LORIKEET_TEST

}  // namespace

bool has_test(std::string_view name) {
  return std::any_of(kTests.begin(), kTests.end(), [&](const Entry& entry) { return entry.name == name; });
}

bool apply_test(std::string_view name, const Value& value, const Arguments& arguments, Budget& budget) {
  for (const Entry& entry : kTests)
    if (entry.name == name) return entry.function(value, arguments, budget);
  throw RenderError("the test '" + std::string(name) + "' isn't supported");
}

}  // namespace lorikeet::text::jinja
