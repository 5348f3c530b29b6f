#pragma once

#include <string>
#include <utility>
#include <vector>

#include "text/jinja/ast.h"
#include "text/jinja/interpreter.h"

namespace lorikeet::text::jinja {

/// What namespace() makes: the one value that templates change.
class Namespace : public Object {
 public:
  std::string type_name() const override { return "Namespace"; }
  Value attribute(std::string_view name) const override;
  void set_attribute(const std::string& name, Value value) override;
  void clear() { members_.clear(); }

 private:
  std::vector<std::pair<std::string, Value>> members_;
};

/// A running loop. Values that refer to it outlive it empty.
struct LoopState {
  const Statement* statement = nullptr;
  Scope* scope = nullptr;
  const std::vector<Value>* items = nullptr;
  std::size_t index = 0, depth = 0;
  std::vector<Value> last_seen{};  ///< by loop.changed
  bool has_seen = false;
};

/// The variable `loop`.
class Loop : public Object {
 public:
  explicit Loop(LoopState* state) : state_(state) {}
  std::string type_name() const override { return "LoopContext"; }
  Value attribute(std::string_view name) const override;
  bool callable() const override { return true; }
  Value call(Interpreter& interpreter, Arguments arguments) override;
  void end() { state_ = nullptr; }

 private:
  LoopState* state_;
};

/// A macro, or the body of a {% call %}.
class Macro : public Object {
 public:
  Macro(const Statement& statement, Scope* scope) : statement_(statement), scope_(scope) {}
  std::string type_name() const override { return "Macro"; }
  Value attribute(std::string_view name) const override;
  bool callable() const override { return true; }
  Value call(Interpreter& interpreter, Arguments arguments) override;

 private:
  const Statement& statement_;
  Scope* scope_;
};

/// The function of every template called `name` (range, dict, namespace, raise_exception, strftime_now), or
/// undefined.
Value global_function(const std::string& name);

}  // namespace lorikeet::text::jinja
