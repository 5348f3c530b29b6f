#include "text/jinja/value.h"

#include <algorithm>
#include <cmath>

#include "text/jinja/characters.h"

namespace lorikeet::text::jinja {
namespace {

constexpr std::size_t kMaxDepth = 100;

std::size_t checked_depth(std::size_t deepest) {
  if (deepest + 1 > kMaxDepth)
    throw RenderError("values nest deeper than " + std::to_string(kMaxDepth) + " levels");
  return deepest + 1;
}

bool equal_items(const std::vector<Value>& a, const std::vector<Value>& b) {
  return a.size() == b.size() && std::equal(a.begin(), a.end(), b.begin(), equal);
}

bool equal_members(const Dict& a, const Dict& b) {
  if (a.members.size() != b.members.size()) return false;
  return std::all_of(a.members.begin(), a.members.end(), [&](const auto& member) {
    const Value* other = b.find(member.first);
    return other != nullptr && equal(member.second, *other);
  });
}

}  // namespace

void Budget::use(std::size_t steps) {
  if (steps > left.steps) throw RenderError("the template takes too many steps; does it loop for ever?");
  left.steps -= steps;
}

void Budget::make(std::size_t bytes) {
  if (bytes > left.bytes) throw RenderError("the template makes too much text; does it loop for ever?");
  left.bytes -= bytes;
}

Value Value::undefined(std::string what, bool unsafe) {
  Value value;
  value.data_ = Undefined{std::make_shared<const std::string>(std::move(what)), unsafe};
  return value;
}

Value Value::sequence(SequenceKind kind, std::vector<Value> items) {
  std::size_t deepest = 0;
  for (const Value& item : items) deepest = std::max(deepest, item.depth());
  auto sequence = std::make_shared<Sequence>();
  sequence->kind = kind;
  sequence->items = std::move(items);
  sequence->depth = checked_depth(deepest);
  return std::shared_ptr<const Sequence>(std::move(sequence));
}

Value Value::list(std::vector<Value> items) { return sequence(SequenceKind::kList, std::move(items)); }
Value Value::tuple(std::vector<Value> items) { return sequence(SequenceKind::kTuple, std::move(items)); }
Value Value::iterator(std::vector<Value> items) {
  return sequence(SequenceKind::kIterator, std::move(items));
}

Value Value::dict(std::vector<std::pair<Value, Value>> members) {
  std::size_t deepest = 0;
  for (const auto& [key, value] : members) deepest = std::max({deepest, key.depth(), value.depth()});
  auto dict = std::make_shared<Dict>();
  dict->members = std::move(members);
  dict->depth = checked_depth(deepest);
  return std::shared_ptr<const Dict>(std::move(dict));
}

Value Value::from_json(const Json& json, Origin origin) {
  if (json.is_null()) return None{};
  if (json.is_bool()) return json.boolean();
  if (json.is_integer()) return json.integer();
  if (json.is_number()) return json.number();
  if (json.is_string()) return text(json.string(), origin);
  if (json.is_array()) {
    std::vector<Value> items;
    items.reserve(json.array().size());
    for (const Json& item : json.array()) items.push_back(from_json(item, origin));
    return list(std::move(items));
  }
  std::vector<std::pair<Value, Value>> members;
  members.reserve(json.object().size());
  for (const auto& [key, value] : json.object())
    members.emplace_back(text(key, origin), from_json(value, origin));
  return dict(std::move(members));
}

std::int64_t Value::integer() const {
  if (const auto* value = get_if<bool>()) return *value ? 1 : 0;
  if (const auto* value = get_if<std::int64_t>()) return *value;
  throw RenderError("expected an integer, got " + type_name());
}

double Value::number() const {
  if (const auto* value = get_if<double>()) return *value;
  return static_cast<double>(integer());
}

std::string Value::type_name() const {
  if (is_undefined()) return "Undefined";
  if (is_none()) return "NoneType";
  if (is_bool()) return "bool";
  if (is_integer()) return "int";
  if (is_float()) return "float";
  if (is_text()) return "str";
  if (as_dict() != nullptr) return "dict";
  if (const Object* object = as_object()) return object->type_name();
  switch (as_sequence()->kind) {
    case Sequence::Kind::kList: return "list";
    case Sequence::Kind::kTuple: return "tuple";
    case Sequence::Kind::kIterator: return "generator";
    case Sequence::Kind::kKeys: return "dict_keys";
    case Sequence::Kind::kValues: return "dict_values";
    case Sequence::Kind::kItems: return "dict_items";
    case Sequence::Kind::kRange: return "range";
  }
  return "object";
}

std::size_t Value::depth() const {
  if (const Sequence* sequence = as_sequence()) return sequence->depth;
  if (const Dict* dict = as_dict()) return dict->depth;
  if (const Object* object = as_object()) return object->depth();
  return 0;
}

bool Value::truth() const {
  if (is_undefined()) return false;
  if (is_none()) return false;
  if (is_integer()) return integer() != 0;
  if (is_float()) return number() != 0;
  if (const MarkedText* text = as_text()) return !text->empty();
  if (const Dict* dict = as_dict()) return !dict->members.empty();
  if (const Sequence* sequence = as_sequence())
    return sequence->kind == Sequence::Kind::kIterator || !sequence->items.empty();
  return true;
}

const Value* Dict::find(const Value& key) const {
  const auto found = std::find_if(members.begin(), members.end(),
                                  [&](const auto& member) { return equal(member.first, key); });
  return found == members.end() ? nullptr : &found->second;
}

const Value* Dict::find(std::string_view key) const {
  for (const auto& [name, value] : members) {
    const MarkedText* text = name.as_text();
    if (text != nullptr && text->bytes() == key) return &value;
  }
  return nullptr;
}

Value Object::attribute(std::string_view name) const {
  return Value::undefined("'" + type_name() + "' has no attribute '" + std::string(name) + "'");
}

// Subclasses keep what they are given.
// NOLINTNEXTLINE(performance-unnecessary-value-param)
void Object::set_attribute(const std::string& name, Value) {
  throw RenderError("can't set '" + name + "' of a value that is no namespace");
}

// NOLINTNEXTLINE(performance-unnecessary-value-param)
Value Object::call(Interpreter&, Arguments) { throw RenderError("'" + type_name() + "' can't be called"); }

bool equal(const Value& a, const Value& b) {
  if (a.is_number() && b.is_number()) {
    if (a.is_integer() && b.is_integer()) return a.integer() == b.integer();
    return a.number() == b.number();
  }
  if (a.is_text() && b.is_text()) return a.as_text()->bytes() == b.as_text()->bytes();
  if (a.is_none() || b.is_none()) return a.is_none() && b.is_none();
  if (a.is_undefined() || b.is_undefined()) return a.is_undefined() && b.is_undefined();
  if (a.as_dict() != nullptr && b.as_dict() != nullptr) return equal_members(*a.as_dict(), *b.as_dict());
  if (const Sequence *x = a.as_sequence(), *y = b.as_sequence(); x != nullptr && y != nullptr) {
    if (x == y) return true;
    return x->kind == y->kind && x->indexable() && equal_items(x->items, y->items);
  }
  return a.as_object() != nullptr && a.as_object() == b.as_object();
}

bool less(const Value& a, const Value& b) {
  if (a.is_number() && b.is_number()) {
    if (a.is_integer() && b.is_integer()) return a.integer() < b.integer();
    return a.number() < b.number();
  }
  // The order of UTF-8's bytes is that of the code points.
  if (a.is_text() && b.is_text()) return a.as_text()->bytes() < b.as_text()->bytes();
  const Sequence *x = a.as_sequence(), *y = b.as_sequence();
  if (x != nullptr && y != nullptr && x->kind == y->kind && x->indexable()) {
    for (std::size_t i = 0; i < std::min(x->items.size(), y->items.size()); ++i)
      if (!equal(x->items[i], y->items[i])) return less(x->items[i], y->items[i]);
    return x->items.size() < y->items.size();
  }
  for (const Value& value : {a, b})
    if (const Undefined* undefined = value.as_undefined()) throw RenderError(*undefined->what);
  throw RenderError("can't order '" + a.type_name() + "' and '" + b.type_name() + "'");
}

void require_hashable(const Value& value) {
  const Sequence* sequence = value.as_sequence();
  if (value.as_dict() != nullptr || (sequence != nullptr && sequence->kind == Sequence::Kind::kList))
    throw RenderError("unhashable type: '" + value.type_name() + "'");
  if (sequence != nullptr)
    for (const Value& item : sequence->items) require_hashable(item);
}

std::vector<Value> elements(const Value& value, Budget& budget) {
  if (value.is_undefined()) return {};
  if (const Sequence* sequence = value.as_sequence()) {
    if (sequence->kind == Sequence::Kind::kIterator) {
      if (sequence->consumed) return {};
      sequence->consumed = true;
    }
    budget.use(sequence->items.size());
    return sequence->items;
  }
  std::vector<Value> items;
  if (const Dict* dict = value.as_dict()) {
    budget.use(dict->members.size());
    items.reserve(dict->members.size());
    for (const auto& member : dict->members) items.push_back(member.first);
    return items;
  }
  if (const MarkedText* text = value.as_text()) {
    budget.use(text->size());
    for (std::size_t at = 0; at < text->size();) {
      const std::size_t end = next_character(text->bytes(), at);
      MarkedText character = text->substr(at, end);
      character.set_safe(false);  // as Python's iterator of a Markup gives it
      items.emplace_back(std::move(character));
      at = end;
    }
    return items;
  }
  throw RenderError("'" + value.type_name() + "' can't be iterated over");
}

std::int64_t length(const Value& value) {
  if (value.is_undefined()) return 0;
  if (const MarkedText* text = value.as_text()) return count_characters(text->bytes());
  if (const Dict* dict = value.as_dict()) return static_cast<std::int64_t>(dict->members.size());
  const Sequence* sequence = value.as_sequence();
  if (sequence != nullptr && sequence->kind != Sequence::Kind::kIterator)
    return static_cast<std::int64_t>(sequence->items.size());
  throw RenderError("'" + value.type_name() + "' has no length");
}

bool contains(const Value& haystack, const Value& needle, Budget& budget) {
  if (const MarkedText* text = haystack.as_text()) {
    const MarkedText* part = needle.as_text();
    if (part == nullptr)
      throw RenderError("'in <string>' requires a string on its left, got " + needle.type_name());
    budget.use(text->size() / 1024 + text->size() * part->size() / (1U << 16U));
    return text->bytes().find(part->bytes()) != std::string::npos;
  }
  if (const Dict* dict = haystack.as_dict()) {
    require_hashable(needle);
    return dict->find(needle) != nullptr;
  }
  for (const Value& item : elements(haystack, budget))
    if (equal(item, needle)) return true;
  return false;
}

}  // namespace lorikeet::text::jinja
