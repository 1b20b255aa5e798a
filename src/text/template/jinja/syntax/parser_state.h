#pragma once
// The parser, shared by the two files that implement it: expressions and statements. Internal to them.
//
// Recursive descent over the tokens; every level of nesting is counted, because a hostile source is nothing
// but brackets. One thread at a time.

#include <string>
#include <string_view>
#include <vector>

#include "text/jinja/ast.h"
#include "text/jinja/lexer.h"
#include "text/jinja/limits.h"

namespace moeflux::jinja {

class Parser {
 public:
  Parser(std::vector<Token> tokens, std::string_view name, const Limits& limits)
      : tokens_(std::move(tokens)), name_(name), limits_(limits) {}

  Result<Body> parse_template();

 private:
  struct TupleOptions {
    bool simplified = false;    // primary expressions only: what is assigned to
    bool conditional = true;    // `a if b else c` is one of them
    std::string_view end = {};  // a name that ends it
    bool in_parentheses = false;
  };
  // What a macro asks for by using its name.
  struct Uses {
    bool caller = false, varargs = false, kwargs = false;
  };

  // Tokens.
  const Token& current() const { return tokens_[at_]; }
  const Token& next_token() const { return tokens_[std::min(at_ + 1, tokens_.size() - 1)]; }
  Token take();
  bool skip_name(std::string_view name);
  bool skip_op(std::string_view op);
  Result<Token> expect(TokenType type, std::string_view what);
  Status expect_op(std::string_view op);
  Status expect_name(std::string_view name);
  Error error(std::uint32_t line, std::string_view problem) const;
  Error unexpected(std::string_view expected) const;
  Status enter();
  void leave() { --depth_; }

  // Expressions.
  Result<ExpressionPtr> make(std::uint32_t line, std::uint32_t depth_below, decltype(Expression::node) node);
  Result<ExpressionPtr> expression(bool conditional = true);
  Result<ExpressionPtr> conditional_expression();
  Result<ExpressionPtr> logic(bool is_and);
  Result<ExpressionPtr> negation();
  Result<ExpressionPtr> comparison();
  Result<ExpressionPtr> sum();
  Result<ExpressionPtr> concatenation();
  Result<ExpressionPtr> product();
  Result<ExpressionPtr> power();
  Result<ExpressionPtr> unary(bool with_filter = true);
  Result<ExpressionPtr> primary();
  Result<ExpressionPtr> number();
  Result<ExpressionPtr> list();
  Result<ExpressionPtr> dict();
  Result<ExpressionPtr> tuple(const TupleOptions& options);
  Result<ExpressionPtr> postfix(ExpressionPtr node);
  Result<ExpressionPtr> filters_and_tests(ExpressionPtr node);
  Result<ExpressionPtr> attribute(ExpressionPtr node);
  Result<ExpressionPtr> subscript(ExpressionPtr node);
  Result<ExpressionPtr> subscript_index(ExpressionPtr& begin, ExpressionPtr& end, ExpressionPtr& stride,
                                        bool& is_slice);
  Result<ExpressionPtr> call(ExpressionPtr node);
  Result<ExpressionPtr> filter(ExpressionPtr node);  // from the name on
  Result<ExpressionPtr> filter_chain(ExpressionPtr node);
  Result<ExpressionPtr> test(ExpressionPtr node);
  Result<CallArguments> call_arguments(std::uint32_t& depth_below);
  Status call_argument(CallArguments& arguments);
  Result<std::string> dotted_name(std::string_view what);
  Status known(std::string_view name, bool exists, std::string_view kind, std::uint32_t line) const;

  // Statements.
  Result<Body> body(std::vector<std::string_view> ends);
  // Behind a tag: its end, and the body up to one of `ends`, which is the current token then.
  Result<Body> block(std::vector<std::string_view> ends);
  // The same, with nothing but `end` to end it, which is consumed.
  Result<Body> block_to(std::string_view end);
  Status text_or_tag(Body& out);
  Result<Statement> statement();
  Result<Statement> parse_if();
  Result<Statement> parse_for();
  Result<Statement> parse_set();
  Result<Statement> parse_macro();
  Result<Statement> parse_call();
  Result<Statement> parse_filter();
  Result<Statement> parse_with();
  Status parse_print(Body& out);
  Result<Signature> signature();
  Result<Body> macro_body(std::string_view end, Uses& uses);
  Result<Target> target(std::string_view end, bool with_namespace);
  Result<Target> as_target(const Expression& expression) const;

  std::vector<Token> tokens_;
  std::size_t at_ = 0;
  const std::string_view name_;
  const Limits limits_;
  std::uint32_t depth_ = 0;
  std::uint32_t conditional_ =
      0;                     // inside this many conditions, where an unknown filter fails only when reached
  std::uint32_t loops_ = 0;  // around here, in the same macro
  Uses uses_;                // of the names that macros are given, since the last macro began
};

}  // namespace moeflux::jinja
