#include "text/jinja/interpreter.h"

#include <algorithm>

#include "text/jinja/functions.h"
#include "text/jinja/lexer.h"
#include "text/jinja/objects.h"
#include "text/jinja/output.h"

namespace lorikeet::text::jinja {
namespace {

// jinja2 writes what a filter or call block makes as it is: it must be a text.
void append_text(const Value& value, MarkedText& out) {
  const MarkedText* text = value.as_text();
  if (text == nullptr) throw RenderError("the block makes no text but '" + value.type_name() + "'");
  out.append(*text);
}

}  // namespace

const Value* Scope::find(Symbol symbol) const {
  for (const Scope* scope = this; scope != nullptr; scope = scope->parent)
    for (const auto& [name, value] : scope->variables)
      if (name == symbol) return &value;
  return nullptr;
}

void Scope::set(Symbol symbol, Value value) {
  for (auto& [name, old] : variables)
    if (name == symbol) {
      old = std::move(value);
      return;
    }
  variables.emplace_back(symbol, std::move(value));
}

Interpreter::Depth::Depth(Interpreter& interpreter) : interpreter_(interpreter) {
  if (interpreter.depth_ == interpreter.max_depth_)
    throw RenderError("evaluated deeper than " + std::to_string(interpreter.max_depth_) +
                      " levels; does a macro call itself for ever?");
  ++interpreter.depth_;
}

Interpreter::Interpreter(const Ast& ast, const Variables& variables, const Limits& limits,
                         const std::string& date)
    : ast_(ast), budget_{limits}, date_(date), max_depth_(limits.depth) {
  globals_ = enter(nullptr);
  for (Symbol symbol = 0; symbol < ast.symbols.size(); ++symbol) {
    const std::string& name = ast.symbols[symbol];
    const auto given = std::find_if(variables.begin(), variables.end(),
                                    [&](const auto& variable) { return variable.first == name; });
    if (given != variables.end()) {
      globals_->set(symbol, given->second);
    } else if (Value function = global_function(name); !function.is_undefined()) {
      globals_->set(symbol, std::move(function));
    }
  }
}

// Namespaces may hold each other in circles and long chains: emptied one by one, none is destroyed by
// another.
Interpreter::~Interpreter() {
  for (Scope& scope : scopes_) scope.variables.clear();
  for (const auto& object : kept_)
    if (auto* space = dynamic_cast<Namespace*>(object.get())) space->clear();
}

Scope* Interpreter::enter(Scope* parent) {
  if (free_.empty()) {
    scopes_.emplace_back();
    free_.push_back(&scopes_.back());
  }
  Scope* scope = free_.back();
  free_.pop_back();
  scope->parent = parent;
  return scope;
}

void Interpreter::leave(Scope* scope) {
  if (scope->captured) return;
  scope->variables.clear();
  free_.push_back(scope);
}

MarkedText Interpreter::run() {
  MarkedText out;
  try {
    Scope* scope = enter(globals_);
    execute(ast_.body, scope, out);
  } catch (const RenderError& error) {
    fail_at(ast_.source, offset_, error.what());
  }
  return out;
}

Interpreter::Flow Interpreter::execute(const Body& body, Scope* scope, MarkedText& out) {
  const Depth depth(*this);
  for (const Statement& statement : body) {
    const Flow flow = execute(statement, scope, out);
    if (flow != Flow::kNext) return flow;
  }
  return Flow::kNext;
}

Interpreter::Flow Interpreter::execute(const Statement& statement, Scope* scope, MarkedText& out) {
  using Kind = Statement::Kind;
  budget_.use(1);
  offset_ = statement.offset;
  switch (statement.kind) {
    case Kind::kText:
      budget_.make(statement.text.size());
      out.append(statement.text);
      return Flow::kNext;
    case Kind::kOutput: {
      const Value value = evaluate(*statement.expression, scope);
      const std::size_t before = out.size();
      if (const MarkedText* text = value.as_text()) {
        out.append(*text);
      } else {
        out.append(to_text(value));
      }
      budget_.make(out.size() - before);
      return Flow::kNext;
    }
    case Kind::kIf: return run_if(statement, scope, out);
    case Kind::kFor: return run_loop(statement, scope, evaluate(*statement.expression, scope), 0, out);
    case Kind::kSet:
      assign(statement.targets[0], evaluate(*statement.expression, scope), scope);
      return Flow::kNext;
    case Kind::kSetBlock: {
      Value text = captured(statement.body, scope);
      if (statement.filter) text = filtered(*statement.filter, std::move(text), scope);
      assign(statement.targets[0], std::move(text), scope);
      return Flow::kNext;
    }
    case Kind::kMacro: {
      for (Scope* outer = scope; outer != nullptr; outer = outer->parent) outer->captured = true;
      scope->set(statement.symbol, std::shared_ptr<Object>(std::make_shared<Macro>(statement, scope)));
      return Flow::kNext;
    }
    case Kind::kCall: run_call(statement, scope, out); return Flow::kNext;
    case Kind::kFilter:
      append_text(filtered(*statement.filter, captured(statement.body, scope), scope), out);
      return Flow::kNext;
    case Kind::kWith: run_with(statement, scope, out); return Flow::kNext;
    case Kind::kGeneration: {
      const MarkedText text = captured(statement.body, scope);
      out.append(text, 0, text.size(), kGenerated);
      return Flow::kNext;
    }
    case Kind::kBreak: return Flow::kBreak;
    case Kind::kContinue: return Flow::kContinue;
  }
  return Flow::kNext;
}

Interpreter::Flow Interpreter::run_if(const Statement& statement, Scope* scope, MarkedText& out) {
  for (const auto& [condition, body] : statement.branches)
    if (evaluate(*condition, scope).truth()) return execute(body, scope, out);
  return execute(statement.otherwise, scope, out);
}

Interpreter::Flow Interpreter::run_loop(const Statement& statement, Scope* scope, const Value& iterable,
                                        std::size_t depth, MarkedText& out) {
  std::vector<Value> items = elements(iterable, budget_);
  if (statement.filter) {
    std::vector<Value> kept;
    for (Value& item : items) {
      Scope* inner = enter(scope);
      assign(statement.targets[0], item, inner);
      const bool keep = evaluate(*statement.filter, inner).truth();
      leave(inner);
      if (keep) kept.push_back(std::move(item));
    }
    items = std::move(kept);
  }
  LoopState state{.statement = &statement, .scope = scope, .items = &items, .index = 0, .depth = depth};
  const auto loop = std::make_shared<Loop>(&state);
  struct End {
    Loop& loop;
    ~End() { loop.end(); }
  } const end{*loop};
  bool completed = false;
  for (; state.index < items.size(); ++state.index) {
    budget_.use(1);
    Scope* inner = enter(scope);
    inner->set(kLoop, std::shared_ptr<Object>(loop));
    assign(statement.targets[0], items[state.index], inner);
    const Flow flow = execute(statement.body, inner, out);
    leave(inner);
    if (flow == Flow::kNext) completed = true;
    if (flow == Flow::kBreak) break;
  }
  if (completed) return Flow::kNext;
  // As in jinja2: also where break or continue ended each body that began.
  Scope* inner = enter(scope);
  const Flow flow = execute(statement.otherwise, inner, out);
  leave(inner);
  return flow;
}

Value Interpreter::call_loop(const Statement& loop, Scope* scope, const Value& items, std::size_t depth) {
  const Depth level(*this);
  MarkedText out;
  run_loop(loop, scope, items, depth, out);
  return out;
}

void Interpreter::run_call(const Statement& statement, Scope* scope, MarkedText& out) {
  for (Scope* outer = scope; outer != nullptr; outer = outer->parent) outer->captured = true;
  const Expression& call = *statement.expression;
  const Value callee = evaluate(*call.children[0], scope);
  Arguments given = arguments(call, scope);
  given.named.emplace_back("caller", std::shared_ptr<Object>(std::make_shared<Macro>(statement, scope)));
  append_text(call_value(callee, std::move(given)), out);
}

void Interpreter::run_with(const Statement& statement, Scope* scope, MarkedText& out) {
  Scope* inner = enter(scope);
  std::vector<Value> given;
  given.reserve(statement.values.size());
  for (const ExpressionPtr& value : statement.values) given.push_back(evaluate(*value, scope));
  for (std::size_t i = 0; i < given.size(); ++i) assign(statement.targets[i], std::move(given[i]), inner);
  execute(statement.body, inner, out);
  leave(inner);
}

void Interpreter::assign(const Target& target, Value value, Scope* scope) {
  if (!target.parts.empty()) {
    std::vector<Value> parts = elements(value, budget_);
    if (parts.size() != target.parts.size())
      throw RenderError("can't unpack " + std::to_string(parts.size()) + " values into " +
                        std::to_string(target.parts.size()) + " names");
    for (std::size_t i = 0; i < parts.size(); ++i) assign(target.parts[i], std::move(parts[i]), scope);
  } else if (target.attribute.empty()) {
    scope->set(target.symbol, std::move(value));
  } else {
    const Value* space = scope->find(target.symbol);
    if (space == nullptr || space->as_object() == nullptr)
      throw RenderError("cannot assign attribute on non-namespace object");
    if (value.depth() > 90) throw RenderError("values nest deeper than 90 levels");
    space->as_object()->set_attribute(target.attribute, std::move(value));
  }
}

MarkedText Interpreter::captured(const Body& body, Scope* scope) {
  MarkedText out;
  Scope* inner = enter(scope);
  execute(body, inner, out);
  leave(inner);
  return out;
}

Value Interpreter::filtered(const Expression& filter, Value subject, Scope* scope) {
  const bool innermost = filter.children[0] == nullptr;
  const Value value =
      innermost ? std::move(subject) : filtered(*filter.children[0], std::move(subject), scope);
  return apply_filter(filter.name, value, arguments(filter, scope), budget_);
}

Value Interpreter::call_body(const Statement& macro, Scope* scope, Arguments given) {
  const Depth depth(*this);
  Scope* inner = enter(scope);
  std::vector<bool> used(given.named.size(), false);
  for (std::size_t i = 0; i < macro.parameters.size(); ++i) {
    const Parameter& parameter = macro.parameters[i];
    const Value* value = i < given.positional.size() ? &given.positional[i] : nullptr;
    for (std::size_t n = 0; n < given.named.size(); ++n) {
      if (given.named[n].first != parameter.name) continue;
      if (value != nullptr)
        throw RenderError("macro '" + macro.name + "' got '" + parameter.name + "' twice");
      value = &given.named[n].second;
      used[n] = true;
    }
    if (value != nullptr) {
      inner->set(parameter.symbol, *value);
    } else if (parameter.fallback) {
      inner->set(parameter.symbol, evaluate(*parameter.fallback, inner));
    } else {
      inner->set(parameter.symbol, Value::undefined("parameter '" + parameter.name + "' was not provided"));
    }
  }
  std::vector<std::pair<Value, Value>> others;
  inner->set(kCaller, Value::undefined("no caller defined"));
  for (std::size_t n = 0; n < given.named.size(); ++n) {
    if (used[n]) continue;
    const auto& [name, value] = given.named[n];
    if (name == "caller" && macro.reads_caller) {
      inner->set(kCaller, value);
    } else if (macro.reads_kwargs) {
      others.emplace_back(Value::text(name), value);
    } else {
      throw RenderError("macro '" + macro.name + "' takes no keyword argument '" + name + "'");
    }
  }
  std::vector<Value> more;
  for (std::size_t i = macro.parameters.size(); i < given.positional.size(); ++i)
    more.push_back(given.positional[i]);
  if (!more.empty() && !macro.reads_varargs)
    throw RenderError("macro '" + macro.name + "' takes not more than " +
                      std::to_string(macro.parameters.size()) + " arguments");
  if (macro.reads_varargs) inner->set(kVarargs, Value::tuple(std::move(more)));
  if (macro.reads_kwargs) inner->set(kKwargs, Value::dict(std::move(others)));
  MarkedText out;
  execute(macro.body, inner, out);
  leave(inner);
  return out;
}

}  // namespace lorikeet::text::jinja
