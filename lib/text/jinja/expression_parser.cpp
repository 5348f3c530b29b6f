#include "text/jinja/expression_parser.h"

#include <algorithm>
#include <charconv>

namespace lorikeet::text::jinja {
namespace {

constexpr std::size_t kMaxNesting = 100;
constexpr std::size_t kMaxDepth = 250;  // of an expression, chains such as a + b + c ... among them

bool any_of(std::string_view text, std::initializer_list<std::string_view> choices) {
  return std::find(choices.begin(), choices.end(), text) != choices.end();
}

}  // namespace

ExpressionParser::Level::Level(ExpressionParser& parser) : parser_(parser) {
  if (parser.depth_ == kMaxNesting)
    parser.fail(parser.current().offset, "nested deeper than " + std::to_string(kMaxNesting) + " levels");
  ++parser.depth_;
}

void ExpressionParser::fail(std::size_t offset, const std::string& problem) const {
  fail_at(ast_.source, offset, problem);
}

void ExpressionParser::unexpected(const std::string& expected) const {
  const Token& token = current();
  const auto got = [&]() -> std::string {
    switch (token.kind) {
      case TokenKind::kEnd: return "the template's end";
      case TokenKind::kVariableEnd: return "'}}'";
      case TokenKind::kBlockEnd: return "'%}'";
      case TokenKind::kString: return "a string";
      case TokenKind::kData: return "text";
      default: return "'" + token.text.substr(0, 40) + "'";
    }
  };
  fail(token.offset, "expected " + expected + ", got " + got());
}

bool ExpressionParser::is_operator(std::string_view text) const {
  return current().kind == TokenKind::kOperator && current().text == text;
}

bool ExpressionParser::is_name(std::string_view text) const {
  return current().kind == TokenKind::kName && current().text == text;
}

bool ExpressionParser::skip_operator(std::string_view text) {
  const bool found = is_operator(text);
  if (found) ++at_;
  return found;
}

bool ExpressionParser::skip_name(std::string_view text) {
  const bool found = is_name(text);
  if (found) ++at_;
  return found;
}

void ExpressionParser::expect_operator(std::string_view text) {
  if (!skip_operator(text)) unexpected("'" + std::string(text) + "'");
}

std::string ExpressionParser::expect_name() {
  if (current().kind != TokenKind::kName) unexpected("a name");
  return next().text;
}

Symbol ExpressionParser::symbol_of(const std::string& name) {
  const auto [found, added] = symbols_.emplace(name, ast_.symbols.size());
  if (added) ast_.symbols.push_back(name);
  return found->second;
}

void ExpressionParser::grow(Expression& expression) const {
  for (const ExpressionPtr& child : expression.children)
    if (child) expression.depth = std::max(expression.depth, child->depth + 1);
  if (expression.depth > kMaxDepth)
    fail(expression.offset, "an expression has more than " + std::to_string(kMaxDepth) + " levels");
}

ExpressionPtr ExpressionParser::make(Kind kind, std::size_t offset, std::vector<ExpressionPtr> children,
                                     std::string name) const {
  auto node = std::make_unique<Expression>();
  node->kind = kind;
  node->offset = offset;
  node->name = std::move(name);
  node->children = std::move(children);
  grow(*node);
  return node;
}

ExpressionPtr ExpressionParser::pair(Kind kind, std::size_t offset, ExpressionPtr a, ExpressionPtr b,
                                     std::string name) const {
  std::vector<ExpressionPtr> children;
  children.push_back(std::move(a));
  children.push_back(std::move(b));
  return make(kind, offset, std::move(children), std::move(name));
}

ExpressionPtr ExpressionParser::expression(bool conditional) {
  const Level level(*this);
  ExpressionPtr value = either();
  while (conditional && is_name("if")) {
    const std::size_t offset = next().offset;
    std::vector<ExpressionPtr> children;
    children.push_back(either());
    children.push_back(std::move(value));
    children.push_back(skip_name("else") ? expression() : nullptr);
    value = make(Kind::kConditional, offset, std::move(children));
  }
  return value;
}

ExpressionPtr ExpressionParser::either() {
  ExpressionPtr left = both();
  while (is_name("or")) {
    const std::size_t offset = next().offset;
    left = pair(Kind::kOr, offset, std::move(left), both());
  }
  return left;
}

ExpressionPtr ExpressionParser::both() {
  ExpressionPtr left = negation();
  while (is_name("and")) {
    const std::size_t offset = next().offset;
    left = pair(Kind::kAnd, offset, std::move(left), negation());
  }
  return left;
}

ExpressionPtr ExpressionParser::negation() {
  if (!is_name("not")) return comparison();
  const Level level(*this);
  const std::size_t offset = next().offset;
  std::vector<ExpressionPtr> children;
  children.push_back(negation());
  return make(Kind::kNot, offset, std::move(children));
}

ExpressionPtr ExpressionParser::comparison() {
  const std::size_t offset = current().offset;
  std::vector<ExpressionPtr> children;
  children.push_back(sum());
  std::vector<std::string> operators;
  for (;;) {
    if (current().kind == TokenKind::kOperator &&
        any_of(current().text, {"==", "!=", "<", "<=", ">", ">="})) {
      operators.push_back(next().text);
    } else if (skip_name("in")) {
      operators.emplace_back("in");
    } else if (is_name("not") && look().kind == TokenKind::kName && look().text == "in") {
      next();
      next();
      operators.emplace_back("not in");
    } else {
      break;
    }
    children.push_back(sum());
  }
  if (operators.empty()) return std::move(children.front());
  ExpressionPtr node = make(Kind::kCompare, offset, std::move(children));
  node->names = std::move(operators);
  return node;
}

ExpressionPtr ExpressionParser::sum() {
  ExpressionPtr left = concatenation();
  while (is_operator("+") || is_operator("-")) {
    const Token& sign = next();
    left = pair(Kind::kBinary, sign.offset, std::move(left), concatenation(), sign.text);
  }
  return left;
}

ExpressionPtr ExpressionParser::concatenation() {
  const std::size_t offset = current().offset;
  std::vector<ExpressionPtr> parts;
  parts.push_back(product());
  while (skip_operator("~")) parts.push_back(product());
  if (parts.size() == 1) return std::move(parts.front());
  return make(Kind::kConcat, offset, std::move(parts));
}

ExpressionPtr ExpressionParser::product() {
  ExpressionPtr left = power();
  while (current().kind == TokenKind::kOperator && any_of(current().text, {"*", "/", "//", "%"})) {
    const Token& sign = next();
    left = pair(Kind::kBinary, sign.offset, std::move(left), power(), sign.text);
  }
  return left;
}

// Jinja's power is left-associative, and its sign binds tighter.
ExpressionPtr ExpressionParser::power() {
  ExpressionPtr left = unary();
  while (is_operator("**")) {
    const std::size_t offset = next().offset;
    left = pair(Kind::kBinary, offset, std::move(left), unary(), "**");
  }
  return left;
}

ExpressionPtr ExpressionParser::unary(bool with_filter) {
  ExpressionPtr node;
  if (is_operator("-") || is_operator("+")) {
    const Level level(*this);
    const Token& sign = next();
    std::vector<ExpressionPtr> children;
    children.push_back(unary(false));
    node = make(sign.text == "-" ? Kind::kNegative : Kind::kPositive, sign.offset, std::move(children));
  } else {
    node = primary();
  }
  node = postfix(std::move(node));
  return with_filter ? filtered(std::move(node)) : std::move(node);
}

ExpressionPtr ExpressionParser::primary() {
  const Token& token = current();
  const auto constant = [&](Value value) {
    ExpressionPtr node = make(Kind::kConstant, token.offset);
    node->constant = std::move(value);
    return node;
  };
  switch (token.kind) {
    case TokenKind::kName: {
      next();
      if (any_of(token.text, {"true", "True"})) return constant(true);
      if (any_of(token.text, {"false", "False"})) return constant(false);
      if (any_of(token.text, {"none", "None"})) return constant(None{});
      ExpressionPtr node = make(Kind::kName, token.offset, {}, token.text);
      node->symbol = symbol_of(token.text);
      return node;
    }
    case TokenKind::kString: {
      std::string text;
      while (current().kind == TokenKind::kString) text += next().text;
      return constant(Value::text(text));
    }
    case TokenKind::kInteger: {
      std::int64_t value = 0;
      const auto end = std::from_chars(token.text.data(), token.text.data() + token.text.size(), value);
      if (end.ec != std::errc()) fail(token.offset, "an integer has more than 64 bits");
      next();
      return constant(value);
    }
    case TokenKind::kFloat: {
      double value = 0;
      const auto end = std::from_chars(token.text.data(), token.text.data() + token.text.size(), value);
      if (end.ec != std::errc()) fail(token.offset, "a number is out of range");
      next();
      return constant(value);
    }
    default: break;
  }
  if (is_operator("(")) return parenthesised();
  if (is_operator("[")) return list();
  if (is_operator("{")) return dict();
  unexpected("an expression");
}

ExpressionPtr ExpressionParser::parenthesised() {
  const std::size_t offset = next().offset;
  ExpressionPtr node = is_operator(")") ? make(Kind::kTuple, offset) : tuple();
  expect_operator(")");
  return node;
}

ExpressionPtr ExpressionParser::tuple(bool conditional, std::string_view end) {
  const std::size_t offset = current().offset;
  std::vector<ExpressionPtr> parts;
  bool is_tuple = false;
  for (;;) {
    if (!parts.empty()) {
      if (!skip_operator(",")) break;
      is_tuple = true;
      const bool ends = current().kind == TokenKind::kVariableEnd || current().kind == TokenKind::kBlockEnd ||
                        is_operator(")") || (!end.empty() && is_name(end));
      if (ends) break;
    }
    parts.push_back(expression(conditional));
  }
  if (!is_tuple) return std::move(parts.front());
  return make(Kind::kTuple, offset, std::move(parts));
}

ExpressionPtr ExpressionParser::list() {
  const std::size_t offset = next().offset;
  std::vector<ExpressionPtr> items;
  while (!is_operator("]")) {
    if (!items.empty()) expect_operator(",");
    if (is_operator("]")) break;
    items.push_back(expression());
  }
  expect_operator("]");
  return make(Kind::kList, offset, std::move(items));
}

ExpressionPtr ExpressionParser::dict() {
  const std::size_t offset = next().offset;
  std::vector<ExpressionPtr> members;
  while (!is_operator("}")) {
    if (!members.empty()) expect_operator(",");
    if (is_operator("}")) break;
    members.push_back(expression());
    expect_operator(":");
    members.push_back(expression());
  }
  expect_operator("}");
  return make(Kind::kDict, offset, std::move(members));
}

ExpressionPtr ExpressionParser::postfix(ExpressionPtr subject) {
  for (;;) {
    if (is_operator(".") || is_operator("[")) {
      subject = subscript(std::move(subject));
    } else if (is_operator("(")) {
      subject = call(std::move(subject));
    } else {
      return subject;
    }
  }
}

ExpressionPtr ExpressionParser::filtered(ExpressionPtr subject) {
  for (;;) {
    if (is_operator("|")) {
      next();
      subject = filter(std::move(subject));
    } else if (is_name("is")) {
      subject = test(std::move(subject));
    } else if (is_operator("(")) {
      subject = call(std::move(subject));
    } else {
      return subject;
    }
  }
}

ExpressionPtr ExpressionParser::subscript(ExpressionPtr subject) {
  const Token& token = next();
  if (token.text == ".") {
    if (current().kind == TokenKind::kName) {
      std::vector<ExpressionPtr> children;
      children.push_back(std::move(subject));
      return make(Kind::kAttribute, token.offset, std::move(children), next().text);
    }
    if (current().kind != TokenKind::kInteger) unexpected("a name or a number");
    return pair(Kind::kItem, token.offset, std::move(subject), primary());
  }
  std::vector<ExpressionPtr> parts;
  bool slice = is_operator(":");
  parts.push_back(slice ? nullptr : expression());
  while (parts.size() < 3 && skip_operator(":")) {
    slice = true;
    const bool empty = is_operator("]") || is_operator(":");
    parts.push_back(empty ? nullptr : expression());
  }
  expect_operator("]");
  if (!slice) return pair(Kind::kItem, token.offset, std::move(subject), std::move(parts.front()));
  parts.resize(3);
  parts.insert(parts.begin(), std::move(subject));
  return make(Kind::kSlice, token.offset, std::move(parts));
}

void ExpressionParser::arguments(Expression& call) {
  expect_operator("(");
  bool first = true;
  while (!is_operator(")")) {
    if (!first) expect_operator(",");
    first = false;
    if (is_operator(")")) break;
    if (is_operator("*") || is_operator("**"))
      fail(current().offset, "arguments by * and ** aren't supported");
    const bool named =
        current().kind == TokenKind::kName && look().kind == TokenKind::kOperator && look().text == "=";
    if (named) {
      call.names.push_back(next().text);
      next();
    } else if (!call.names.empty()) {
      fail(current().offset, "an argument without a name follows one with a name");
    }
    call.children.push_back(expression());
  }
  expect_operator(")");
  grow(call);
}

ExpressionPtr ExpressionParser::call(ExpressionPtr subject) {
  std::vector<ExpressionPtr> children;
  const std::size_t offset = subject->offset;
  children.push_back(std::move(subject));
  ExpressionPtr node = make(Kind::kCall, offset, std::move(children));
  arguments(*node);
  return node;
}

ExpressionPtr ExpressionParser::filter(ExpressionPtr subject) {
  const std::size_t offset = current().offset;
  std::vector<ExpressionPtr> children;
  children.push_back(std::move(subject));
  ExpressionPtr node = make(Kind::kFilter, offset, std::move(children), expect_name());
  if (is_operator("(")) arguments(*node);
  return node;
}

ExpressionPtr ExpressionParser::filters(ExpressionPtr subject) {
  while (skip_operator("|")) subject = filter(std::move(subject));
  return subject;
}

ExpressionPtr ExpressionParser::test(ExpressionPtr subject) {
  const std::size_t offset = next().offset;
  const bool negated = skip_name("not");
  std::vector<ExpressionPtr> children;
  children.push_back(std::move(subject));
  ExpressionPtr node = make(Kind::kTest, offset, std::move(children), expect_name());
  const Token& token = current();
  const bool literal = token.kind == TokenKind::kString || token.kind == TokenKind::kInteger ||
                       token.kind == TokenKind::kFloat || is_operator("[") || is_operator("{");
  if (is_operator("(")) {
    arguments(*node);
  } else if (literal || (token.kind == TokenKind::kName && !any_of(token.text, {"else", "or", "and"}))) {
    // A name that begins what follows the test ("if", "in", "not") is Jinja's argument, too.
    if (is_name("is")) fail(token.offset, "tests by 'is' can't follow each other");
    node->children.push_back(postfix(primary()));
    grow(*node);
  }
  if (!negated) return node;
  children.clear();
  children.push_back(std::move(node));
  return make(Kind::kNot, offset, std::move(children));
}

}  // namespace lorikeet::text::jinja
