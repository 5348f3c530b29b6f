// Expressions: the other half of Interpreter.
#include "text/jinja/functions.h"
#include "text/jinja/interpreter.h"
#include "text/jinja/output.h"

namespace lorikeet::text::jinja {

Value Interpreter::evaluate(const Expression& expression, Scope* scope) {
  if (expression.kind == Expression::Kind::kConstant) return expression.constant;
  const Depth depth(*this);
  budget_.use(1);
  // An operator's own errors come after its operands were evaluated: their place is the operator's again.
  const std::size_t outer = offset_;
  offset_ = expression.offset;
  Value value = evaluate_kind(expression, scope);
  offset_ = outer;
  return value;
}

Value Interpreter::evaluate_kind(const Expression& expression, Scope* scope) {
  using Kind = Expression::Kind;
  const auto child = [&](std::size_t i) { return evaluate(*expression.children[i], scope); };
  switch (expression.kind) {
    case Kind::kConstant: return expression.constant;
    case Kind::kName: return name(expression, scope);
    case Kind::kList: return Value::list(values(expression, scope));
    case Kind::kTuple: return Value::tuple(values(expression, scope));
    case Kind::kDict: return dict(expression, scope);
    case Kind::kAttribute: return attribute_of(child(0), expression.name);
    case Kind::kItem: {
      const Value subject = child(0);
      if (const MarkedText* text = subject.as_text()) budget_.use(text->size() / 1024);
      return item_of(subject, child(1));
    }
    case Kind::kSlice: return slice(expression, scope);
    case Kind::kCall: return call(expression, scope);
    case Kind::kFilter: {
      const Value subject = child(0);
      return apply_filter(expression.name, subject, arguments(expression, scope), budget_);
    }
    case Kind::kTest: {
      const Value subject = child(0);
      return apply_test(expression.name, subject, arguments(expression, scope), budget_);
    }
    case Kind::kNot: return !child(0).truth();
    case Kind::kNegative: return negative(child(0));
    case Kind::kPositive: {
      const Value value = child(0);
      if (!value.is_number()) throw RenderError("bad operand type for unary +: '" + value.type_name() + "'");
      return value.is_integer() ? Value(value.integer()) : value;
    }
    case Kind::kBinary: {
      const Value a = child(0);
      return arithmetic(expression.name, a, child(1), budget_);
    }
    case Kind::kConcat: {
      MarkedText out;
      for (const ExpressionPtr& part : expression.children) out.append(to_text(evaluate(*part, scope)));
      budget_.make(out.size());
      return out;
    }
    case Kind::kAnd: {
      Value a = child(0);
      return a.truth() ? child(1) : a;
    }
    case Kind::kOr: {
      Value a = child(0);
      return a.truth() ? a : child(1);
    }
    case Kind::kCompare: return compare(expression, scope);
    case Kind::kConditional:
      if (child(0).truth()) return child(1);
      if (expression.children[2]) return child(2);
      return Value::undefined("the inline if-expression evaluated to false and no else section was defined");
  }
  return {};
}

Value Interpreter::name(const Expression& expression, Scope* scope) {
  if (const Value* value = scope->find(expression.symbol)) return *value;
  return Value::undefined("'" + expression.name + "' is undefined");
}

std::vector<Value> Interpreter::values(const Expression& expression, Scope* scope) {
  std::vector<Value> out;
  out.reserve(expression.children.size());
  for (const ExpressionPtr& child : expression.children) out.push_back(evaluate(*child, scope));
  return out;
}

Value Interpreter::dict(const Expression& expression, Scope* scope) {
  std::vector<std::pair<Value, Value>> members;
  for (std::size_t i = 0; i < expression.children.size(); i += 2) {
    const Value key = evaluate(*expression.children[i], scope);
    require_hashable(key);
    Value value = evaluate(*expression.children[i + 1], scope);
    budget_.use(members.size());
    bool found = false;
    for (auto& member : members) {
      if (!equal(member.first, key)) continue;
      member.second = value;
      found = true;
    }
    if (!found) members.emplace_back(key, std::move(value));
  }
  return Value::dict(std::move(members));
}

Arguments Interpreter::arguments(const Expression& expression, Scope* scope) {
  Arguments out;
  const std::size_t positional = expression.children.size() - expression.names.size();
  for (std::size_t i = 1; i < expression.children.size(); ++i) {
    Value value = evaluate(*expression.children[i], scope);
    if (i < positional) {
      out.positional.push_back(std::move(value));
    } else {
      out.named.emplace_back(expression.names[i - positional], std::move(value));
    }
  }
  return out;
}

Value Interpreter::call(const Expression& expression, Scope* scope) {
  const Value callee = evaluate(*expression.children[0], scope);
  return call_value(callee, arguments(expression, scope));
}

Value Interpreter::call_value(const Value& callee, Arguments given) {
  if (const Undefined* undefined = callee.as_undefined()) throw RenderError(*undefined->what);
  Object* object = callee.as_object();
  if (object == nullptr || !object->callable())
    throw RenderError("a value of type '" + callee.type_name() + "' can't be called");
  return object->call(*this, std::move(given));
}

Value Interpreter::slice(const Expression& expression, Scope* scope) {
  const auto bound = [&](std::size_t i) -> Value {
    if (!expression.children[i]) return None{};
    return evaluate(*expression.children[i], scope);
  };
  const Value subject = evaluate(*expression.children[0], scope);
  const Value begin = bound(1), end = bound(2);
  return slice_of(subject, begin, end, bound(3), budget_);
}

bool Interpreter::compare(const Expression& expression, Scope* scope) {
  Value left = evaluate(*expression.children[0], scope);
  for (std::size_t i = 0; i < expression.names.size(); ++i) {
    const std::string& op = expression.names[i];
    Value right = evaluate(*expression.children[i + 1], scope);
    if (const MarkedText* text = right.as_text()) budget_.use(text->size() / 4096);
    const bool holds = op == "=="       ? equal(left, right)
                       : op == "!="     ? !equal(left, right)
                       : op == "in"     ? contains(right, left, budget_)
                       : op == "not in" ? !contains(right, left, budget_)
                       : op == "<"      ? less(left, right)
                       : op == ">"      ? less(right, left)
                       : op == "<="     ? less(left, right) || equal(left, right)
                                        : less(right, left) || equal(left, right);
    if (!holds) return false;
    left = std::move(right);
  }
  return true;
}

}  // namespace lorikeet::text::jinja
