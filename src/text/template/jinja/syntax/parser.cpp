#include "text/template/jinja/syntax/parser.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/printable.h"
#include "text/template/jinja/builtins/characters.h"
#include "text/template/jinja/scoping.h"
#include "text/template/jinja/syntax/parser_state.h"

namespace moeflux::jinja {
namespace {

std::string shown(const Token& token) {
  switch (token.type) {
    case TokenType::data: return "text";
    case TokenType::print_begin: return "'{{'";
    case TokenType::print_end: return "'}}'";
    case TokenType::block_begin: return "'{%'";
    case TokenType::block_end: return "'%}'";
    case TokenType::string: return fmt::format("string '{}'", printable(token.text, 60));
    case TokenType::end: return "the end of the template";
    default: return fmt::format("'{}'", printable(token.text, 60));
  }
}

}  // namespace

Token Parser::take() {
  Token out = tokens_[at_];
  if (at_ + 1 < tokens_.size()) ++at_;
  return out;
}

bool Parser::skip_name(std::string_view name) {
  if (!current().is_name(name)) return false;
  take();
  return true;
}

bool Parser::skip_op(std::string_view op) {
  if (!current().is_op(op)) return false;
  take();
  return true;
}

Error Parser::error(std::uint32_t line, std::string_view problem) const {
  return Error(ErrorCode::corrupt_data, fmt::format("{}:{}: {}", name_, line, problem));
}

Error Parser::unexpected(std::string_view expected) const {
  return error(current().line, fmt::format("unexpected {}, expected {}", shown(current()), expected));
}

Result<Token> Parser::expect(TokenType type, std::string_view what) {
  if (current().type != type) return unexpected(what);
  return take();
}

Status Parser::expect_op(std::string_view op) {
  if (skip_op(op)) return {};
  return unexpected(fmt::format("'{}'", op));
}

Status Parser::expect_name(std::string_view name) {
  if (skip_name(name)) return {};
  return unexpected(fmt::format("'{}'", name));
}

Status Parser::enter() {
  if (++depth_ <= 2 * limits_.depth) return {};
  return Error(ErrorCode::unsupported,
               fmt::format("{}:{}: nested deeper than {}", name_, current().line, 2 * limits_.depth));
}

Result<Body> Parser::parse_template() { return body({}); }

Result<Body> Parser::body(std::vector<std::string_view> ends) {
  MF_TRY_STATUS(enter());
  Body out;
  while (current().type != TokenType::end) {
    if (current().type == TokenType::block_begin && next_token().type == TokenType::name &&
        std::find(ends.begin(), ends.end(), next_token().text) != ends.end()) {
      take();
      leave();
      return out;
    }
    MF_TRY_STATUS(text_or_tag(out));
  }
  if (!ends.empty()) return unexpected(fmt::format("'{{% {} %}}'", ends.front()));
  leave();
  return out;
}

Status Parser::text_or_tag(Body& out) {
  const std::uint32_t line = current().line;
  if (current().type == TokenType::data) {
    out.push_back({line, Data{constant_string(take().text)}});
    return {};
  }
  if (current().type == TokenType::print_begin) {
    take();
    MF_TRY(ExpressionPtr value, tuple({}));
    MF_TRY_STATUS(expect(TokenType::print_end, "'}}'"));
    out.push_back({line, Print{std::move(value)}});
    return {};
  }
  MF_TRY_STATUS(expect(TokenType::block_begin, "a tag"));
  if (current().is_name("print")) {
    MF_TRY_STATUS(parse_print(out));
  } else {
    MF_TRY(Statement parsed, statement());
    out.push_back(std::move(parsed));
  }
  MF_TRY_STATUS(expect(TokenType::block_end, "'%}'"));
  return {};
}

Result<Body> Parser::block(std::vector<std::string_view> ends) {
  skip_op(":");
  MF_TRY_STATUS(expect(TokenType::block_end, "'%}'"));
  return body(std::move(ends));
}

Result<Body> Parser::block_to(std::string_view end) {
  MF_TRY(Body out, block({end}));
  take();
  return out;
}

Result<Statement> Parser::statement() {
  const std::uint32_t line = current().line;
  if (current().type != TokenType::name) return unexpected("the name of a tag");
  const std::string& tag = current().text;
  if (tag == "if") return parse_if();
  if (tag == "for") return parse_for();
  if (tag == "set") return parse_set();
  if (tag == "macro") return parse_macro();
  if (tag == "call") return parse_call();
  if (tag == "filter") return parse_filter();
  if (tag == "with") return parse_with();
  if (tag == "generation") {
    take();
    MF_TRY(Body inside, block_to("endgeneration"));
    return Statement{line, Generation{std::move(inside), {}}};
  }
  if (tag == "break" || tag == "continue") {
    if (loops_ == 0) return error(line, fmt::format("'{}' outside of a loop", tag));
    if (take().text == "break") return Statement{line, Break{}};
    return Statement{line, Continue{}};
  }
  for (const std::string_view other : {"include", "extends", "import", "from", "block", "autoescape"}) {
    if (tag == other) {
      return Error(ErrorCode::unsupported,
                   fmt::format("{}:{}: the tag '{}' is not supported in chat templates", name_, line, tag));
    }
  }
  return error(line, fmt::format("unknown tag '{}'", printable(tag, 60)));
}

Result<Statement> Parser::parse_if() {
  const std::uint32_t line = current().line;
  If out;
  ++conditional_;
  do {
    take();
    MF_TRY(ExpressionPtr test, tuple({.conditional = false}));
    MF_TRY(Body then, block({"elif", "else", "endif"}));
    out.branches.emplace_back(std::move(test), std::move(then));
  } while (current().is_name("elif"));
  if (skip_name("else")) {
    MF_TRY(out.otherwise, block({"endif"}));
  }
  take();
  --conditional_;
  return Statement{line, std::move(out)};
}

Result<Statement> Parser::parse_for() {
  const std::uint32_t line = take().line;
  For out{};
  MF_TRY(out.target, target("in", false));
  MF_TRY_STATUS(expect_name("in"));
  MF_TRY(out.iterable, tuple({.conditional = false, .end = "recursive"}));
  if (skip_name("if")) {
    MF_TRY(out.condition, expression());
  }
  out.recursive = skip_name("recursive");
  ++loops_;
  MF_TRY(out.body, block({"endfor", "else"}));
  --loops_;
  if (skip_name("else")) {
    MF_TRY(out.otherwise, block({"endfor"}));
  }
  take();
  return Statement{line, std::move(out)};
}

Result<Statement> Parser::parse_set() {
  const std::uint32_t line = take().line;
  MF_TRY(Target to, target("", true));
  if (skip_op("=")) {
    MF_TRY(ExpressionPtr value, tuple({}));
    return Statement{line, Set{std::move(to), std::move(value)}};
  }
  MF_TRY(ExpressionPtr filters, filter_chain(nullptr));
  MF_TRY(Body inside, block_to("endset"));
  return Statement{line, SetBlock{std::move(to), std::move(filters), std::move(inside), {}}};
}

Result<Signature> Parser::signature() {
  Signature out;
  MF_TRY_STATUS(expect_op("("));
  while (!current().is_op(")")) {
    if (!out.names.empty()) MF_TRY_STATUS(expect_op(","));
    MF_TRY(const Token name, expect(TokenType::name, "the name of a parameter"));
    if (std::find(out.names.begin(), out.names.end(), name.text) != out.names.end())
      return error(name.line, fmt::format("parameter '{}' occurs twice", printable(name.text, 60)));
    out.names.push_back(name.text);
    if (skip_op("=")) {
      MF_TRY(ExpressionPtr value, expression());
      out.defaults.push_back(std::move(value));
    } else if (!out.defaults.empty()) {
      return error(name.line, "a parameter without a default follows one with a default");
    }
  }
  MF_TRY_STATUS(expect_op(")"));
  return out;
}

// The body of a macro, outside of all surrounding loops, and the implicit parameters that it uses.
Result<Body> Parser::macro_body(std::string_view end, Uses& uses) {
  const std::uint32_t loops = std::exchange(loops_, 0);
  const Uses outer = std::exchange(uses_, {});
  MF_TRY(Body out, block_to(end));
  uses = uses_;
  uses_ = {outer.caller || uses.caller, outer.varargs || uses.varargs, outer.kwargs || uses.kwargs};
  loops_ = loops;
  return out;
}

Result<Statement> Parser::parse_macro() {
  const std::uint32_t line = take().line;
  MF_TRY(const Token name, expect(TokenType::name, "the name of a macro"));
  MF_TRY(Signature parameters, signature());
  Uses uses;
  MF_TRY(Body inside, macro_body("endmacro", uses));
  return Statement{
      line,
      Macro{name.text, std::move(parameters), std::move(inside), uses.caller, uses.varargs, uses.kwargs, {}}};
}

Result<Statement> Parser::parse_call() {
  const std::uint32_t line = take().line;
  Signature parameters;
  if (current().is_op("(")) {
    MF_TRY(parameters, signature());
  }
  MF_TRY(ExpressionPtr called, expression());
  if (!std::holds_alternative<Call>(called->node)) return error(line, "{% call %} expects a call");
  Uses uses;
  MF_TRY(Body inside, macro_body("endcall", uses));
  Macro caller{"caller", std::move(parameters), std::move(inside), uses.caller, uses.varargs, uses.kwargs,
               {}};
  return Statement{line, CallBlock{std::move(called), std::move(caller)}};
}

Result<Statement> Parser::parse_filter() {
  const std::uint32_t line = take().line;
  MF_TRY(ExpressionPtr first, filter(nullptr));
  MF_TRY(ExpressionPtr filters, filter_chain(std::move(first)));
  MF_TRY(Body inside, block_to("endfilter"));
  return Statement{line, FilterBlock{std::move(filters), std::move(inside), {}}};
}

Result<Statement> Parser::parse_with() {
  const std::uint32_t line = take().line;
  With out;
  while (current().type != TokenType::block_end && !current().is_op(":")) {
    if (!out.bindings.empty()) MF_TRY_STATUS(expect_op(","));
    MF_TRY(Target to, target("", false));
    MF_TRY_STATUS(expect_op("="));
    MF_TRY(ExpressionPtr value, expression());
    out.bindings.emplace_back(std::move(to), std::move(value));
  }
  MF_TRY(out.body, block_to("endwith"));
  return Statement{line, std::move(out)};
}

Status Parser::parse_print(Body& out) {
  take();
  for (bool first = true; current().type != TokenType::block_end; first = false) {
    if (!first) MF_TRY_STATUS(expect_op(","));
    const std::uint32_t line = current().line;
    MF_TRY(ExpressionPtr value, expression());
    out.push_back({line, Print{std::move(value)}});
  }
  return {};
}

Result<Target> Parser::target(std::string_view end, bool with_namespace) {
  if (with_namespace && next_token().is_op(".")) {
    MF_TRY(const Token name, expect(TokenType::name, "a name"));
    take();
    MF_TRY(const Token attribute, expect(TokenType::name, "the name of an attribute"));
    return Target{name.text, attribute.text, {}};
  }
  MF_TRY(const ExpressionPtr parsed, tuple({.simplified = true, .end = end}));
  return as_target(*parsed);
}

Result<Target> Parser::as_target(const Expression& expression) const {
  if (const auto* name = std::get_if<Name>(&expression.node)) return Target{name->name, "", {}};
  const auto* parts = std::get_if<SequenceLiteral>(&expression.node);
  if (parts == nullptr || !parts->is_tuple) return error(expression.line, "this cannot be assigned to");
  Target out;
  for (const ExpressionPtr& part : parts->items) {
    MF_TRY(Target one, as_target(*part));
    out.parts.push_back(std::move(one));
  }
  if (out.parts.empty()) return error(expression.line, "an empty tuple cannot be assigned to");
  return out;
}

Result<Ast> parse(std::string_view source, std::string_view name, const Limits& limits) {
  if (source.size() > limits.source_bytes) {
    return Error(ErrorCode::unsupported,
                 fmt::format("{}: {} bytes, expected at most {}", name, with_thousands(source.size()),
                             with_thousands(limits.source_bytes)));
  }
  if (!is_valid_utf8(source)) return Error(ErrorCode::corrupt_data, fmt::format("{}: is not UTF-8", name));
  MF_TRY(std::vector<Token> tokens, tokenize(source, name));
  Parser parser(std::move(tokens), name, limits);
  MF_TRY(Body body, parser.parse_template());
  Ast out{std::string(name), std::move(body), {}};
  MF_TRY_STATUS(find_hidden_names(out));
  return out;
}

}  // namespace moeflux::jinja
