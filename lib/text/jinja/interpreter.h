#pragma once

#include <deque>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "text/jinja/ast.h"
#include "text/jinja/value.h"

namespace lorikeet::text::jinja {

/// Variables of a block; names not found are looked for in the enclosing scope.
struct Scope {
  Scope* parent = nullptr;
  std::vector<std::pair<Symbol, Value>> variables{};
  bool captured = false;  ///< a macro refers to it: it lives until the rendering ends

  const Value* find(Symbol symbol) const;
  void set(Symbol symbol, Value value);
};

/// One rendering of a template. Not thread-safe; the template's tree may be shared.
class Interpreter {
 public:
  using Variables = std::vector<std::pair<std::string, Value>>;

  /// `ast` must outlive it. `date` ("2024-07-26") is what strftime_now writes, at noon.
  Interpreter(const Ast& ast, const Variables& variables, const Limits& limits, const std::string& date);
  ~Interpreter();
  Interpreter(const Interpreter&) = delete;
  Interpreter& operator=(const Interpreter&) = delete;

  /// Throws Error naming line and column.
  MarkedText run();

  Budget& budget() { return budget_; }
  const std::string& date() const { return date_; }
  /// Calls a macro's or caller's body; used by their objects.
  Value call_body(const Statement& macro, Scope* scope, Arguments arguments);
  /// The text of a recursive loop over `items`, one level deeper.
  Value call_loop(const Statement& loop, Scope* scope, const Value& items, std::size_t depth);
  /// Keeps a namespace alive until the end, so that none is destroyed through another.
  void keep(std::shared_ptr<Object> object) { kept_.push_back(std::move(object)); }

 private:
  enum class Flow : std::uint8_t { kNext, kBreak, kContinue };

  // One level of evaluation for as long as it lives.
  class Depth {
   public:
    explicit Depth(Interpreter& interpreter);
    ~Depth() { --interpreter_.depth_; }
    Depth(const Depth&) = delete;
    Depth& operator=(const Depth&) = delete;

   private:
    Interpreter& interpreter_;
  };

  Scope* enter(Scope* parent);
  void leave(Scope* scope);
  Flow execute(const Body& body, Scope* scope, MarkedText& out);
  Flow execute(const Statement& statement, Scope* scope, MarkedText& out);
  Flow run_if(const Statement& statement, Scope* scope, MarkedText& out);
  Flow run_loop(const Statement& statement, Scope* scope, const Value& items, std::size_t depth,
                MarkedText& out);
  void run_call(const Statement& statement, Scope* scope, MarkedText& out);
  void run_with(const Statement& statement, Scope* scope, MarkedText& out);
  void assign(const Target& target, Value value, Scope* scope);
  MarkedText captured(const Body& body, Scope* scope);
  Value filtered(const Expression& filter, Value subject, Scope* scope);

  Value evaluate(const Expression& expression, Scope* scope);
  Value evaluate_kind(const Expression& expression, Scope* scope);
  Value name(const Expression& expression, Scope* scope);
  Value call(const Expression& expression, Scope* scope);
  Value call_value(const Value& callee, Arguments arguments);
  Value slice(const Expression& expression, Scope* scope);
  Value dict(const Expression& expression, Scope* scope);
  bool compare(const Expression& expression, Scope* scope);
  Arguments arguments(const Expression& expression, Scope* scope);
  std::vector<Value> values(const Expression& expression, Scope* scope);

  const Ast& ast_;
  Budget budget_;
  std::string date_;
  std::size_t depth_ = 0, max_depth_;
  std::size_t offset_ = 0;  // of what is evaluated, for errors
  std::deque<Scope> scopes_;
  std::vector<Scope*> free_;
  std::vector<std::shared_ptr<Object>> kept_;
  Scope* globals_ = nullptr;
};

}  // namespace lorikeet::text::jinja
