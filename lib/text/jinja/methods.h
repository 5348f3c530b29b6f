#pragma once

#include "text/jinja/value.h"

namespace lorikeet::text::jinja {

/// A function of the template language that is written here.
class Native : public Object {
 public:
  using Function = Value (*)(const Value& self, const Arguments& arguments, Budget& budget);
  Native(std::string name, Function function, Value self = {})
      : name_(std::move(name)), function_(function), self_(std::move(self)) {}
  std::string type_name() const override { return "builtin_function_or_method"; }
  bool callable() const override { return true; }
  Value call(Interpreter& interpreter, Arguments arguments) override;
  std::size_t depth() const override { return self_.depth() + 1; }

 private:
  std::string name_;
  Function function_;
  Value self_;
};

}  // namespace lorikeet::text::jinja
