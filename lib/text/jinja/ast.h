#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "text/jinja/value.h"

namespace lorikeet::text::jinja {

/// A variable's name as a number: its index in Ast::symbols.
using Symbol = std::size_t;
enum SpecialSymbol : Symbol { kLoop, kCaller, kVarargs, kKwargs };  ///< those that every tree has

struct Expression {
  enum class Kind : std::uint8_t {
    kConstant,
    kName,
    kList,
    kTuple,
    kDict,       ///< children: key, value, key, value ...
    kAttribute,  ///< children[0] . name
    kItem,       ///< children[0] [ children[1] ]
    kSlice,      ///< children[0] [ children[1] : children[2] : children[3] ], the last three may be null
    kCall,       ///< children[0] ( the others )
    kFilter,     ///< children[0] | name ( the others ); children[0] is null for a block's own text
    kTest,       ///< children[0] is name ( the others )
    kNot,
    kNegative,
    kPositive,
    kBinary,  ///< by `name`: + - * / // % **
    kConcat,
    kAnd,
    kOr,
    kCompare,      ///< children[0] names[0] children[1] names[1] children[2] ...
    kConditional,  ///< children[1] if children[0] else children[2], which may be null
  };
  Kind kind = Kind::kConstant;
  std::size_t offset = 0;  ///< into the source, for errors
  std::size_t depth = 1;   ///< levels of expressions in it
  std::string name{};
  Symbol symbol = 0;
  Value constant{};
  std::vector<std::unique_ptr<Expression>> children{};
  std::vector<std::string>
      names{};  ///< of the last children of a call, filter or test; a comparison's operators
};
using ExpressionPtr = std::unique_ptr<Expression>;

/// What is assigned to: a name, an attribute of a namespace, or several of them.
struct Target {
  Symbol symbol = 0;
  std::string attribute{};      ///< of the namespace `symbol`; empty for a name
  std::vector<Target> parts{};  ///< of a tuple
};

struct Parameter {
  Symbol symbol = 0;
  std::string name{};
  ExpressionPtr fallback{};  ///< null where the argument must be given
};

struct Statement;
using Body = std::vector<Statement>;

struct Statement {
  enum class Kind : std::uint8_t {
    kText,    ///< writes `text`
    kOutput,  ///< writes `expression`
    kIf,      ///< `branches`, then `otherwise`
    kFor,     ///< `target` in `expression`, where `filter`: `body`; without elements `otherwise`
    kSet,     ///< `target` = `expression`
    kSetBlock,
    kMacro,
    kCall,  ///< {% call %}: `expression` is the call, `body` the caller's
    kFilter,
    kWith,
    kGeneration,
    kBreak,
    kContinue,
  };
  Kind kind = Kind::kText;
  std::size_t offset = 0;
  MarkedText text{};
  ExpressionPtr expression{};
  ExpressionPtr filter{};
  std::vector<Target> targets{};
  std::vector<ExpressionPtr> values{};  ///< of {% with %}
  std::vector<std::pair<ExpressionPtr, Body>> branches{};
  Body body{};
  Body otherwise{};
  bool recursive = false;
  std::string name{};
  Symbol symbol = 0;
  std::vector<Parameter> parameters{};
  // What the body of a macro or caller reads beside its parameters.
  bool reads_varargs = false, reads_kwargs = false, reads_caller = false;
};

struct Ast {
  std::string source;
  Body body;
  std::vector<std::string> symbols;
  bool has_generation = false;
};

}  // namespace lorikeet::text::jinja
