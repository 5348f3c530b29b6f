#include "text/jinja/parser.h"

#include <algorithm>
#include <initializer_list>

#include "text/jinja/expression_parser.h"

namespace lorikeet::text::jinja {
namespace {

class Parser : private ExpressionParser {
 public:
  explicit Parser(Ast& ast) : ExpressionParser(ast) {
    // The symbols that the interpreter sets by itself, in the order of SpecialSymbol.
    for (const char* name : {"loop", "caller", "varargs", "kwargs"}) symbol_of(name);
  }

  void run() {
    ast_.body = body({});
    if (current().kind != TokenKind::kEnd) unexpected("the template's end");
  }

 private:
  using Kind = Statement::Kind;
  using Ends = std::initializer_list<std::string_view>;

  // Statements up to a tag of one of `ends`, whose name is then current.
  Body body(Ends ends) {
    const Level level(*this);
    Body out;
    for (;;) {
      const Token& token = current();
      if (token.kind == TokenKind::kData) {
        Statement text{.kind = Kind::kText, .offset = token.offset};
        text.text = MarkedText(next().text);
        out.push_back(std::move(text));
      } else if (token.kind == TokenKind::kVariableBegin) {
        next();
        Statement output{.kind = Kind::kOutput, .offset = token.offset};
        output.expression = tuple();
        if (current().kind != TokenKind::kVariableEnd) unexpected("'}}'");
        next();
        out.push_back(std::move(output));
      } else if (token.kind == TokenKind::kBlockBegin) {
        next();
        if (std::any_of(ends.begin(), ends.end(), [&](std::string_view end) { return is_name(end); }))
          return out;
        out.push_back(statement(token.offset));
        end_tag();
      } else {
        if (ends.size() > 0) unexpected("{% " + std::string(*ends.begin()) + " %}");
        return out;
      }
    }
  }

  void end_tag() {
    if (current().kind != TokenKind::kBlockEnd) unexpected("'%}'");
    next();
  }

  // The body of the tag that is open, and the end's name.
  Body block(Ends ends) {
    skip_operator(":");
    end_tag();
    return body(ends);
  }
  Body closed_block(std::string_view end) {
    Body out = block({end});
    next();
    return out;
  }

  Statement statement(std::size_t offset) {
    if (current().kind != TokenKind::kName) unexpected("a tag's name");
    const std::string tag = next().text;
    Statement out{.offset = offset};
    out.name = tag;
    if (tag == "if") return if_tag(std::move(out));
    if (tag == "for") return for_tag(std::move(out));
    if (tag == "set") return set_tag(std::move(out));
    if (tag == "macro") return macro_tag(std::move(out));
    if (tag == "call") return call_tag(std::move(out));
    if (tag == "filter") return filter_tag(std::move(out));
    if (tag == "with") return with_tag(std::move(out));
    if (tag == "generation") {
      out.kind = Kind::kGeneration;
      ast_.has_generation = true;
      out.body = closed_block("endgeneration");
      return out;
    }
    if (tag == "break" || tag == "continue") {
      if (loops_ == 0) fail(offset, "'" + tag + "' stands outside a loop");
      out.kind = tag == "break" ? Kind::kBreak : Kind::kContinue;
      return out;
    }
    fail(offset, "the tag '" + tag.substr(0, 40) + "' isn't supported");
  }

  Statement if_tag(Statement out) {
    out.kind = Kind::kIf;
    for (;;) {
      ExpressionPtr condition = tuple(/*conditional=*/false);
      Body then = block({"elif", "else", "endif"});
      out.branches.emplace_back(std::move(condition), std::move(then));
      const std::string end = next().text;
      if (end == "elif") continue;
      if (end == "else") out.otherwise = closed_block("endif");
      return out;
    }
  }

  Statement for_tag(Statement out) {
    out.kind = Kind::kFor;
    out.targets.push_back(target("in"));
    if (!skip_name("in")) unexpected("'in'");
    out.expression = tuple(/*conditional=*/false, "recursive");
    if (skip_name("if")) out.filter = expression();
    out.recursive = skip_name("recursive");
    ++loops_;
    out.body = block({"endfor", "else"});
    --loops_;
    if (next().text == "else") out.otherwise = closed_block("endfor");
    return out;
  }

  Statement set_tag(Statement out) {
    out.targets.push_back(target({}));
    if (skip_operator("=")) {
      out.kind = Kind::kSet;
      out.expression = tuple();
      return out;
    }
    out.kind = Kind::kSetBlock;
    out.filter = filters(nullptr);
    out.body = closed_block("endset");
    return out;
  }

  Target single_target() {
    const std::size_t offset = current().offset;
    if (skip_operator("(")) {
      Target inner = target(")");
      expect_operator(")");
      return inner;
    }
    const std::string name = expect_name();
    for (const char* constant : {"true", "false", "none", "True", "False", "None"})
      if (name == constant) fail(offset, "'" + name + "' can't be assigned to");
    Target out{.symbol = symbol_of(name)};
    if (skip_operator(".")) out.attribute = expect_name();
    return out;
  }

  // One target, or several with commas between, up to the name or operator `end` or what begins no target.
  Target target(std::string_view end) {
    const Level level(*this);
    Target first = single_target();
    if (!is_operator(",")) return first;
    Target out;
    out.parts.push_back(std::move(first));
    while (skip_operator(",")) {
      if (is_operator("=") || is_operator(")") || (!end.empty() && is_name(end))) break;
      out.parts.push_back(single_target());
    }
    return out;
  }

  std::vector<Parameter> signature() {
    std::vector<Parameter> parameters;
    expect_operator("(");
    while (!is_operator(")")) {
      if (!parameters.empty()) expect_operator(",");
      const std::size_t offset = current().offset;
      Parameter parameter;
      parameter.name = expect_name();
      parameter.symbol = symbol_of(parameter.name);
      if (skip_operator("=")) {
        parameter.fallback = expression();
      } else if (!parameters.empty() && parameters.back().fallback) {
        fail(offset, "a parameter without a default follows one with a default");
      }
      parameters.push_back(std::move(parameter));
    }
    expect_operator(")");
    return parameters;
  }

  // The body of a macro or caller; remembers which of the special names occur in it.
  void callable_body(Statement& out, std::string_view end) {
    const std::size_t outer_loops = loops_;
    loops_ = 0;
    const std::size_t begin = current().offset;
    out.body = closed_block(end);
    const std::string_view source = std::string_view(ast_.source).substr(begin, current().offset - begin);
    out.reads_varargs = source.find("varargs") != std::string_view::npos;
    out.reads_kwargs = source.find("kwargs") != std::string_view::npos;
    out.reads_caller = source.find("caller") != std::string_view::npos;
    loops_ = outer_loops;
  }

  Statement macro_tag(Statement out) {
    out.kind = Kind::kMacro;
    out.name = expect_name();
    out.symbol = symbol_of(out.name);
    out.parameters = signature();
    callable_body(out, "endmacro");
    return out;
  }

  Statement call_tag(Statement out) {
    out.kind = Kind::kCall;
    out.name = "caller";
    if (is_operator("(")) out.parameters = signature();
    const std::size_t offset = current().offset;
    out.expression = expression();
    if (out.expression->kind != Expression::Kind::kCall) fail(offset, "expected a call");
    callable_body(out, "endcall");
    return out;
  }

  Statement filter_tag(Statement out) {
    out.kind = Kind::kFilter;
    out.filter = filters(filter(nullptr));
    out.body = closed_block("endfilter");
    return out;
  }

  Statement with_tag(Statement out) {
    out.kind = Kind::kWith;
    while (current().kind != TokenKind::kBlockEnd) {
      if (!out.targets.empty()) expect_operator(",");
      out.targets.push_back(single_target());
      expect_operator("=");
      out.values.push_back(expression());
    }
    out.body = closed_block("endwith");
    return out;
  }

  std::size_t loops_ = 0;
};

}  // namespace

Ast parse(std::string_view source) {
  Ast ast;
  ast.source = normalize_source(source);
  Parser(ast).run();
  return ast;
}

}  // namespace lorikeet::text::jinja
