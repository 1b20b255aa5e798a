#pragma once
// The Parser: recursive descent over the tokens. Internal to the two files that implement its expressions and
// statements.
//
// Counts every level of nesting, because a hostile source may be nothing but brackets. One thread at a time.

#include <string>
#include <string_view>
#include <vector>

#include "text/template/jinja/limits.h"
#include "text/template/jinja/syntax/ast.h"
#include "text/template/jinja/syntax/lexer.h"

namespace moeflux::jinja {

class Parser {
 public:
  Parser(std::vector<Token> tokens, std::string_view name, const Limits& limits)
      : tokens_(std::move(tokens)), name_(name), limits_(limits) {}

  Result<Body> parse_template();

 private:
  struct TupleOptions {
    bool simplified = false;    // primary expressions only, for assignment targets
    bool conditional = true;    // `a if b else c` is allowed
    std::string_view end = {};  // a name that ends it
    bool in_parentheses = false;
  };
  // The implicit parameters that a macro uses.
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
  // After a tag: consumes its end and the body up to one of `ends`, which becomes the current token.
  Result<Body> block(std::vector<std::string_view> ends);
  // The same up to `end`, which is consumed.
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
  std::uint32_t conditional_ = 0;  // enclosing conditions, in which an unknown filter fails only if reached
  std::uint32_t loops_ = 0;        // enclosing loops in the same macro
  Uses uses_;                      // since the current macro began
};

}  // namespace moeflux::jinja
