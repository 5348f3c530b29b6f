#include <algorithm>
#include <cmath>

#include "text/jinja/characters.h"
#include "text/jinja/functions.h"
#include "text/jinja/output.h"

namespace lorikeet::text::jinja {
namespace {

constexpr const char* kOverflow = "an integer doesn't fit in 64 bits";

[[noreturn]] void unsupported(std::string_view op, const Value& a, const Value& b) {
  for (const Value& value : {a, b})
    if (const Undefined* undefined = value.as_undefined()) throw RenderError(*undefined->what);
  throw RenderError("can't compute '" + a.type_name() + "' " + std::string(op) + " '" + b.type_name() + "'");
}

// Python rounds quotients down, and a remainder has the divisor's sign.
std::int64_t floor_division(std::int64_t a, std::int64_t b) {
  if (b == 0) throw RenderError("division by zero");
  if (a == INT64_MIN && b == -1) throw RenderError(kOverflow);
  const std::int64_t quotient = a / b;
  return a % b != 0 && ((a < 0) != (b < 0)) ? quotient - 1 : quotient;
}

std::int64_t integer_power(std::int64_t base, std::int64_t exponent) {
  if (base == 0 || base == 1) return exponent == 0 ? 1 : base;
  if (base == -1) return exponent % 2 == 0 ? 1 : -1;
  std::int64_t result = 1;
  for (; exponent > 0; --exponent)
    if (__builtin_mul_overflow(result, base, &result)) throw RenderError(kOverflow);
  return result;
}

double float_power(double base, double exponent) {
  if (base == 0 && exponent < 0) throw RenderError("zero can't be raised to a negative power");
  if (base < 0 && exponent != std::floor(exponent)) throw RenderError("complex numbers aren't supported");
  const double result = std::pow(base, exponent);
  if (std::isinf(result) && std::isfinite(base) && std::isfinite(exponent))
    throw RenderError("the power doesn't fit in a float");
  return result;
}

Value integers(std::string_view op, std::int64_t a, std::int64_t b) {
  std::int64_t result = 0;
  bool overflow = false;
  if (op == "+") {
    overflow = __builtin_add_overflow(a, b, &result);
  } else if (op == "-") {
    overflow = __builtin_sub_overflow(a, b, &result);
  } else if (op == "*") {
    overflow = __builtin_mul_overflow(a, b, &result);
  } else if (op == "//") {
    result = floor_division(a, b);
  } else if (op == "%") {
    if (b == 0) throw RenderError("division by zero");
    result = b == -1 ? 0 : a - (floor_division(a, b) * b);
  } else if (op == "**") {
    if (b < 0) return float_power(static_cast<double>(a), static_cast<double>(b));
    result = integer_power(a, b);
  } else {
    if (b == 0) throw RenderError("division by zero");
    return static_cast<double>(a) / static_cast<double>(b);
  }
  if (overflow) throw RenderError(kOverflow);
  return result;
}

double float_remainder(double a, double b) {
  const double rest = std::fmod(a, b);
  if (rest == 0) return std::copysign(0.0, b);
  return (rest < 0) != (b < 0) ? rest + b : rest;
}

Value floats(std::string_view op, double a, double b) {
  if (op == "+") return a + b;
  if (op == "-") return a - b;
  if (op == "*") return a * b;
  if (op == "**") return float_power(a, b);
  if (b == 0) throw RenderError("division by zero");
  if (op == "/") return a / b;
  if (op == "%") return float_remainder(a, b);
  // As Python: exact where the rounded quotient would be one too many.
  const double quotient = (a - float_remainder(a, b)) / b;
  return quotient == 0 ? std::copysign(0.0, a / b) : std::floor(quotient + 0.5);
}

Value repeated(const Value& value, std::int64_t count, Budget& budget) {
  const auto times = static_cast<std::size_t>(std::max<std::int64_t>(count, 0));
  if (const MarkedText* text = value.as_text()) {
    if (!text->empty() && times > SIZE_MAX / text->size()) throw RenderError("a text gets too long");
    budget.make(times * text->size());
    MarkedText out = text->emptied();
    for (std::size_t i = 0; !text->empty() && i < times; ++i) out.append(*text);
    return out;
  }
  const Sequence& sequence = *value.as_sequence();
  if (!sequence.items.empty() && times > SIZE_MAX / sequence.items.size())
    throw RenderError("a list gets too long");
  budget.use(times * sequence.items.size());
  std::vector<Value> items;
  for (std::size_t i = 0; !sequence.items.empty() && i < times; ++i)
    items.insert(items.end(), sequence.items.begin(), sequence.items.end());
  return sequence.kind == Sequence::Kind::kTuple ? Value::tuple(std::move(items))
                                                 : Value::list(std::move(items));
}

bool repeats(const Value& value) {
  const Sequence* sequence = value.as_sequence();
  return value.is_text() || (sequence != nullptr && (sequence->kind == Sequence::Kind::kList ||
                                                     sequence->kind == Sequence::Kind::kTuple));
}

// "..." % values: %s, %r, %d and %%, without width or precision.
Value formatted(const MarkedText& pattern, const Value& values, Budget& budget) {
  std::vector<Value> arguments{values};
  if (const Sequence* tuple = values.as_sequence(); tuple != nullptr && tuple->kind == Sequence::Kind::kTuple)
    arguments = tuple->items;
  MarkedText out = pattern.emptied();
  std::size_t used = 0, begin = 0;
  const std::string& text = pattern.bytes();
  for (std::size_t at = text.find('%'); at != std::string::npos; at = text.find('%', begin)) {
    out.append(pattern, begin, at);
    const char kind = at + 1 < text.size() ? text[at + 1] : '\0';
    begin = at + 2;
    if (kind == '%') {
      out.append(pattern, at, at + 1);
      continue;
    }
    if (kind != 's' && kind != 'r' && kind != 'd')
      throw RenderError("of formats by % only %s, %r, %d and %% are supported");
    if (used == arguments.size()) throw RenderError("not enough arguments for format string");
    const Value& value = arguments[used++];
    if (kind == 'd' && !value.is_number()) throw RenderError("%d needs a number, got " + value.type_name());
    if (kind == 'd' && value.is_float()) throw RenderError("%d of a float isn't supported");
    const MarkedText part = kind == 'r'   ? to_repr(value)
                            : kind == 'd' ? MarkedText(std::to_string(value.integer()))
                                          : to_text(value);
    out.append(escaped_for(pattern, part));
  }
  if (used < arguments.size() && values.as_dict() == nullptr)
    throw RenderError("not all arguments converted during string formatting");
  out.append(pattern, begin, text.size());
  budget.make(out.size());
  return out;
}

std::int64_t clamped_index(const Value& value, std::int64_t size, std::int64_t low, std::int64_t high,
                           std::int64_t fallback) {
  if (value.is_none()) return fallback;
  std::int64_t index = value.integer();
  if (index < 0) index = index < -size ? -1 : index + size;
  return std::clamp(index, low, high);
}

}  // namespace

Value arithmetic(std::string_view op, const Value& a, const Value& b, Budget& budget) {
  if (a.is_number() && b.is_number())
    return a.is_integer() && b.is_integer() ? integers(op, a.integer(), b.integer())
                                            : floats(op, a.number(), b.number());
  const MarkedText *x = a.as_text(), *y = b.as_text();
  if (op == "+" && x != nullptr && y != nullptr) {
    MarkedText out = escaped_for(*y, *x);
    out.append(escaped_for(*x, *y));
    budget.make(out.size());
    return out;
  }
  if (op == "+" && repeats(a) && repeats(b) && x == nullptr && y == nullptr &&
      a.as_sequence()->kind == b.as_sequence()->kind) {
    std::vector<Value> items = a.as_sequence()->items;
    const std::vector<Value>& more = b.as_sequence()->items;
    budget.use(items.size() + more.size());
    items.insert(items.end(), more.begin(), more.end());
    return a.as_sequence()->kind == Sequence::Kind::kTuple ? Value::tuple(std::move(items))
                                                           : Value::list(std::move(items));
  }
  if (op == "*" && repeats(a) && b.is_integer()) return repeated(a, b.integer(), budget);
  if (op == "*" && repeats(b) && a.is_integer()) return repeated(b, a.integer(), budget);
  if (op == "%" && x != nullptr) return formatted(*x, b, budget);
  unsupported(op, a, b);
}

Value negative(const Value& value) {
  if (value.is_integer()) {
    if (value.integer() == INT64_MIN) throw RenderError(kOverflow);
    return -value.integer();
  }
  if (value.is_float()) return -value.number();
  if (const Undefined* undefined = value.as_undefined()) throw RenderError(*undefined->what);
  throw RenderError("bad operand type for unary -: '" + value.type_name() + "'");
}

Value item_of(const Value& value, const Value& key) {
  if (const Undefined* undefined = value.as_undefined()) throw RenderError(*undefined->what);
  if (const Dict* dict = value.as_dict()) {
    if (const Value* found = dict->find(key)) return *found;
  } else if (key.is_integer()) {
    std::int64_t index = key.integer();
    if (const Sequence* sequence = value.as_sequence(); sequence != nullptr && sequence->indexable()) {
      const auto size = static_cast<std::int64_t>(sequence->items.size());
      if (index < 0) index += size;
      if (index >= 0 && index < size) return sequence->items[static_cast<std::size_t>(index)];
    } else if (const MarkedText* text = value.as_text()) {
      const std::int64_t size = count_characters(text->bytes());
      if (index < 0) index += size;
      if (index >= 0 && index < size) {
        const std::size_t begin = offset_of(text->bytes(), index);
        return text->substr(begin, next_character(text->bytes(), begin));
      }
    }
  }
  if (const MarkedText* name = key.as_text()) {
    if (Object* object = value.as_object()) return object->attribute(name->bytes());
    Value method = method_of(value, name->bytes());
    if (!method.is_undefined() || method.as_undefined()->unsafe) return method;
  }
  return Value::undefined("'" + value.type_name() + "' has no element " + [&] {
    return key.is_text() || key.is_number() ? to_repr(key).bytes().substr(0, 80) : key.type_name();
  }());
}

Value attribute_of(const Value& value, std::string_view name) {
  if (const Undefined* undefined = value.as_undefined()) throw RenderError(*undefined->what);
  if (Object* object = value.as_object()) return object->attribute(name);
  Value method = method_of(value, name);
  if (!method.is_undefined() || method.as_undefined()->unsafe) return method;
  if (const Dict* dict = value.as_dict())
    if (const Value* found = dict->find(name)) return *found;
  return Value::undefined("'" + value.type_name() + "' has no attribute '" + std::string(name) + "'");
}

Value slice_of(const Value& value, const Value& begin, const Value& end, const Value& step, Budget& budget) {
  if (const Undefined* undefined = value.as_undefined()) throw RenderError(*undefined->what);
  const Sequence* sequence = value.as_sequence();
  const MarkedText* text = value.as_text();
  if (text == nullptr && (sequence == nullptr || !sequence->indexable()))
    throw RenderError("'" + value.type_name() + "' has no slices");
  for (const Value& bound : {begin, end, step})
    if (!bound.is_none() && !bound.is_integer())
      throw RenderError("bounds of a slice are integers, got '" + bound.type_name() + "'");
  const std::int64_t by = step.is_none() ? 1 : step.integer();
  if (by == 0) throw RenderError("slice step cannot be zero");
  const std::int64_t size = length(value);
  const std::int64_t low = by > 0 ? 0 : -1, high = by > 0 ? size : size - 1;
  std::int64_t at = clamped_index(begin, size, low, high, by > 0 ? low : high);
  const std::int64_t stop = clamped_index(end, size, low, high, by > 0 ? high : low);
  if (text != nullptr && by == 1) {
    const std::size_t first = offset_of(text->bytes(), at);
    const std::size_t last =
        at < stop ? first + offset_of(std::string_view(text->bytes()).substr(first), stop - at) : first;
    budget.make(last - first);
    return text->substr(first, last);
  }
  const std::vector<Value> all = elements(value, budget);
  std::vector<Value> items;
  while (by > 0 ? at < stop : at > stop) {
    items.push_back(all[static_cast<std::size_t>(at)]);
    if (__builtin_add_overflow(at, by, &at)) break;
  }
  if (text == nullptr) return Value::sequence(sequence->kind, std::move(items));
  MarkedText out = text->emptied();
  for (const Value& item : items) out.append(*item.as_text());
  budget.make(out.size());
  return out;
}

}  // namespace lorikeet::text::jinja
