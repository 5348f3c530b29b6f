#pragma once

#include <cstddef>
#include <initializer_list>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "text/jinja/ast.h"
#include "text/jinja/lexer.h"

namespace lorikeet::text::jinja {

/// The tokens of a template, and expressions out of them by Jinja's precedence.
class ExpressionParser {
 protected:
  explicit ExpressionParser(Ast& ast) : ast_(ast), tokens_(tokenize(ast.source)) {}

  [[noreturn]] void fail(std::size_t offset, const std::string& problem) const;
  [[noreturn]] void unexpected(const std::string& expected) const;
  const Token& current() const { return tokens_[at_]; }
  const Token& next() { return tokens_[at_++]; }
  const Token& look() const { return tokens_[at_ + 1 < tokens_.size() ? at_ + 1 : at_]; }
  bool is_operator(std::string_view text) const;
  bool is_name(std::string_view text) const;
  bool skip_operator(std::string_view text);
  bool skip_name(std::string_view text);
  void expect_operator(std::string_view text);
  std::string expect_name();
  Symbol symbol_of(const std::string& name);

  /// An expression; without `conditional` not one with "if".
  ExpressionPtr expression(bool conditional = true);
  /// Expressions with commas between, as a tuple; one alone as it is. Ends before names of `ends`.
  ExpressionPtr tuple(bool conditional = true, std::string_view end = {});
  /// "| filter" as often as it follows, of `subject` (null for a block's text).
  ExpressionPtr filters(ExpressionPtr subject);
  ExpressionPtr filter(ExpressionPtr subject);

  /// One level of nesting for as long as it lives.
  class Level {
   public:
    explicit Level(ExpressionParser& parser);
    ~Level() { --parser_.depth_; }
    Level(const Level&) = delete;
    Level& operator=(const Level&) = delete;

   private:
    ExpressionParser& parser_;
  };

  Ast& ast_;

 private:
  using Kind = Expression::Kind;
  ExpressionPtr make(Kind kind, std::size_t offset, std::vector<ExpressionPtr> children = {},
                     std::string name = {}) const;
  ExpressionPtr pair(Kind kind, std::size_t offset, ExpressionPtr a, ExpressionPtr b,
                     std::string name = {}) const;
  void grow(Expression& expression) const;
  ExpressionPtr either();
  ExpressionPtr both();
  ExpressionPtr negation();
  ExpressionPtr comparison();
  ExpressionPtr sum();
  ExpressionPtr concatenation();
  ExpressionPtr product();
  ExpressionPtr power();
  ExpressionPtr unary(bool with_filter = true);
  ExpressionPtr primary();
  ExpressionPtr parenthesised();
  ExpressionPtr list();
  ExpressionPtr dict();
  ExpressionPtr postfix(ExpressionPtr subject);
  ExpressionPtr filtered(ExpressionPtr subject);
  ExpressionPtr subscript(ExpressionPtr subject);
  ExpressionPtr call(ExpressionPtr subject);
  ExpressionPtr test(ExpressionPtr subject);
  void arguments(Expression& call);

  std::vector<Token> tokens_;
  std::size_t at_ = 0;
  std::size_t depth_ = 0;
  std::map<std::string, Symbol> symbols_;
};

}  // namespace lorikeet::text::jinja
