// Expressions, from the lowest precedence to the highest.

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <initializer_list>

#include "base/printable.h"
#include "text/template/jinja/builtins/filters.h"
#include "text/template/jinja/builtins/predicates.h"
#include "text/template/jinja/syntax/parser_state.h"

namespace moeflux::jinja {
namespace {

std::uint32_t depth_of(const ExpressionPtr& node) { return node != nullptr ? node->depth : 0; }

template <class... Nodes>
std::uint32_t deepest(const Nodes&... nodes) {
  return std::max({std::uint32_t{0}, depth_of(nodes)...});
}

}  // namespace

Result<ExpressionPtr> Parser::make(std::uint32_t line, std::uint32_t depth_below,
                                   decltype(Expression::node) node) {
  if (depth_below >= limits_.depth) {
    return Error(ErrorCode::unsupported,
                 fmt::format("{}:{}: an expression nests deeper than {}", name_, line, limits_.depth));
  }
  return std::make_unique<Expression>(Expression{line, depth_below + 1, std::move(node)});
}

Result<ExpressionPtr> Parser::expression(bool conditional) {
  MF_TRY_STATUS(enter());
  auto out = conditional ? conditional_expression() : logic(false);
  leave();
  return out;
}

Result<ExpressionPtr> Parser::conditional_expression() {
  std::uint32_t line = current().line;
  MF_TRY(ExpressionPtr out, logic(false));
  while (skip_name("if")) {
    MF_TRY(ExpressionPtr condition, logic(false));
    ExpressionPtr otherwise;
    if (skip_name("else")) {
      MF_TRY_STATUS(enter());
      MF_TRY(otherwise, conditional_expression());
      leave();
    }
    const std::uint32_t depth = deepest(out, condition, otherwise);
    MF_TRY(out, make(line, depth, Conditional{std::move(condition), std::move(out), std::move(otherwise)}));
    line = current().line;
  }
  return out;
}

Result<ExpressionPtr> Parser::logic(bool is_and) {
  const std::uint32_t line = current().line;
  std::vector<ExpressionPtr> operands;
  std::uint32_t depth = 0;
  do {
    MF_TRY(ExpressionPtr operand, is_and ? negation() : logic(true));
    depth = std::max(depth, operand->depth);
    operands.push_back(std::move(operand));
  } while (skip_name(is_and ? "and" : "or"));
  if (operands.size() == 1) return std::move(operands.front());
  return make(line, depth, Logic{is_and, std::move(operands)});
}

Result<ExpressionPtr> Parser::negation() {
  if (!current().is_name("not")) return comparison();
  const std::uint32_t line = take().line;
  MF_TRY_STATUS(enter());
  MF_TRY(ExpressionPtr operand, negation());
  leave();
  const std::uint32_t depth = operand->depth;
  return make(line, depth, Unary{UnaryOperator::logical_not, std::move(operand)});
}

Result<ExpressionPtr> Parser::comparison() {
  static constexpr std::pair<std::string_view, CompareOperator> kOperators[] = {
      {"==", CompareOperator::equal},         {"!=", CompareOperator::not_equal},
      {"<=", CompareOperator::less_equal},    {"<", CompareOperator::less},
      {">=", CompareOperator::greater_equal}, {">", CompareOperator::greater}};
  const std::uint32_t line = current().line;
  MF_TRY(ExpressionPtr first, sum());
  std::uint32_t depth = first->depth;
  std::vector<std::pair<CompareOperator, ExpressionPtr>> rest;
  while (true) {
    std::optional<CompareOperator> op;
    for (const auto& [text, candidate] : kOperators)
      if (current().is_op(text)) op = candidate;
    if (current().is_name("in")) op = CompareOperator::in;
    if (current().is_name("not") && next_token().is_name("in")) {
      take();
      op = CompareOperator::not_in;
    }
    if (!op) break;
    take();
    MF_TRY(ExpressionPtr operand, sum());
    depth = std::max(depth, operand->depth);
    rest.emplace_back(*op, std::move(operand));
  }
  if (rest.empty()) return first;
  return make(line, depth, Comparison{std::move(first), std::move(rest)});
}

Result<ExpressionPtr> Parser::sum() {
  const std::uint32_t line = current().line;
  MF_TRY(ExpressionPtr first, concatenation());
  std::uint32_t depth = first->depth;
  std::vector<std::pair<ArithmeticOperator, ExpressionPtr>> rest;
  while (current().is_op("+") || current().is_op("-")) {
    const auto op = take().text == "+" ? ArithmeticOperator::add : ArithmeticOperator::subtract;
    MF_TRY(ExpressionPtr operand, concatenation());
    depth = std::max(depth, operand->depth);
    rest.emplace_back(op, std::move(operand));
  }
  if (rest.empty()) return first;
  return make(line, depth, Arithmetic{std::move(first), std::move(rest)});
}

Result<ExpressionPtr> Parser::concatenation() {
  const std::uint32_t line = current().line;
  std::vector<ExpressionPtr> operands;
  std::uint32_t depth = 0;
  do {
    MF_TRY(ExpressionPtr operand, product());
    depth = std::max(depth, operand->depth);
    operands.push_back(std::move(operand));
  } while (skip_op("~"));
  if (operands.size() == 1) return std::move(operands.front());
  return make(line, depth, Concatenation{std::move(operands)});
}

Result<ExpressionPtr> Parser::product() {
  static constexpr std::pair<std::string_view, ArithmeticOperator> kOperators[] = {
      {"*", ArithmeticOperator::multiply},
      {"/", ArithmeticOperator::divide},
      {"//", ArithmeticOperator::floor_divide},
      {"%", ArithmeticOperator::modulo}};
  const std::uint32_t line = current().line;
  MF_TRY(ExpressionPtr first, power());
  std::uint32_t depth = first->depth;
  std::vector<std::pair<ArithmeticOperator, ExpressionPtr>> rest;
  while (true) {
    const auto* op = std::find_if(std::begin(kOperators), std::end(kOperators),
                                  [&](const auto& candidate) { return current().is_op(candidate.first); });
    if (op == std::end(kOperators)) break;
    take();
    MF_TRY(ExpressionPtr operand, power());
    depth = std::max(depth, operand->depth);
    rest.emplace_back(op->second, std::move(operand));
  }
  if (rest.empty()) return first;
  return make(line, depth, Arithmetic{std::move(first), std::move(rest)});
}

// Powers are left-associative in Jinja and right-associative in Python.
Result<ExpressionPtr> Parser::power() {
  const std::uint32_t line = current().line;
  MF_TRY(ExpressionPtr first, unary());
  std::uint32_t depth = first->depth;
  std::vector<std::pair<ArithmeticOperator, ExpressionPtr>> rest;
  while (skip_op("**")) {
    MF_TRY(ExpressionPtr operand, unary());
    depth = std::max(depth, operand->depth);
    rest.emplace_back(ArithmeticOperator::power, std::move(operand));
  }
  if (rest.empty()) return first;
  return make(line, depth, Arithmetic{std::move(first), std::move(rest)});
}

Result<ExpressionPtr> Parser::unary(bool with_filter) {
  ExpressionPtr node;
  if (current().is_op("-") || current().is_op("+")) {
    const Token token = take();
    MF_TRY_STATUS(enter());
    MF_TRY(ExpressionPtr operand, unary(false));
    leave();
    const std::uint32_t depth = operand->depth;
    const auto op = token.text == "-" ? UnaryOperator::minus : UnaryOperator::plus;
    MF_TRY(node, make(token.line, depth, Unary{op, std::move(operand)}));
  } else {
    MF_TRY(node, primary());
  }
  MF_TRY(node, postfix(std::move(node)));
  if (!with_filter) return node;
  return filters_and_tests(std::move(node));
}

Result<ExpressionPtr> Parser::primary() {
  const std::uint32_t line = current().line;
  switch (current().type) {
    case TokenType::name: {
      const std::string text = take().text;
      if (text == "true" || text == "True") return make(line, 0, Constant{Value::boolean(true)});
      if (text == "false" || text == "False") return make(line, 0, Constant{Value::boolean(false)});
      if (text == "none" || text == "None") return make(line, 0, Constant{Value()});
      uses_.caller |= text == "caller";
      uses_.varargs |= text == "varargs";
      uses_.kwargs |= text == "kwargs";
      return make(line, 0, Name{text});
    }
    case TokenType::string: {
      std::string text;
      while (current().type == TokenType::string) text += take().text;
      return make(line, 0, Constant{constant_string(std::move(text))});
    }
    case TokenType::integer:
    case TokenType::real: return number();
    default: break;
  }
  if (skip_op("(")) {
    MF_TRY(ExpressionPtr out, tuple({.in_parentheses = true}));
    MF_TRY_STATUS(expect_op(")"));
    return out;
  }
  if (current().is_op("[")) return list();
  if (current().is_op("{")) return dict();
  return unexpected("an expression");
}

Result<ExpressionPtr> Parser::number() {
  const Token token = take();
  const char* first = token.text.data();
  const char* last = first + token.text.size();
  if (token.type == TokenType::real) {
    double value = 0;
    if (std::from_chars(first, last, value).ec == std::errc::result_out_of_range)
      return error(token.line, fmt::format("number '{}' is out of range", printable(token.text, 40)));
    return make(token.line, 0, Constant{Value::real(value)});
  }
  int base = 10;
  if (token.text.size() > 1 && first[0] == '0') {
    const char prefix = static_cast<char>(first[1] | 0x20);
    base = prefix == 'x' ? 16 : prefix == 'o' ? 8 : prefix == 'b' ? 2 : 10;
    if (base != 10) first += 2;
  }
  std::int64_t value = 0;
  if (std::from_chars(first, last, value, base).ec != std::errc{}) {
    return Error(ErrorCode::unsupported, fmt::format("{}:{}: number '{}' does not fit in 64 bits", name_,
                                                     token.line, printable(token.text, 40)));
  }
  return make(token.line, 0, Constant{Value::integer(value)});
}

Result<ExpressionPtr> Parser::list() {
  const std::uint32_t line = take().line;
  std::vector<ExpressionPtr> items;
  std::uint32_t depth = 0;
  while (!current().is_op("]")) {
    if (!items.empty()) MF_TRY_STATUS(expect_op(","));
    if (current().is_op("]")) break;
    MF_TRY(ExpressionPtr item, expression());
    depth = std::max(depth, item->depth);
    items.push_back(std::move(item));
  }
  MF_TRY_STATUS(expect_op("]"));
  return make(line, depth, SequenceLiteral{false, std::move(items)});
}

Result<ExpressionPtr> Parser::dict() {
  const std::uint32_t line = take().line;
  std::vector<std::pair<ExpressionPtr, ExpressionPtr>> entries;
  std::uint32_t depth = 0;
  while (!current().is_op("}")) {
    if (!entries.empty()) MF_TRY_STATUS(expect_op(","));
    if (current().is_op("}")) break;
    MF_TRY(ExpressionPtr key, expression());
    MF_TRY_STATUS(expect_op(":"));
    MF_TRY(ExpressionPtr value, expression());
    depth = std::max(depth, deepest(key, value));
    entries.emplace_back(std::move(key), std::move(value));
  }
  MF_TRY_STATUS(expect_op("}"));
  return make(line, depth, DictLiteral{std::move(entries)});
}

Result<ExpressionPtr> Parser::tuple(const TupleOptions& options) {
  const std::uint32_t line = current().line;
  const auto at_end = [&] {
    const Token& token = current();
    return token.type == TokenType::print_end || token.type == TokenType::block_end || token.is_op(")") ||
           (!options.end.empty() && token.is_name(options.end));
  };
  std::vector<ExpressionPtr> items;
  bool is_tuple = false;
  std::uint32_t depth = 0;
  while (true) {
    if (!items.empty()) MF_TRY_STATUS(expect_op(","));
    if (at_end()) break;
    MF_TRY_STATUS(enter());
    MF_TRY(ExpressionPtr item, options.simplified ? primary() : expression(options.conditional));
    leave();
    depth = std::max(depth, item->depth);
    items.push_back(std::move(item));
    if (!current().is_op(",")) break;
    is_tuple = true;
  }
  if (!is_tuple) {
    if (!items.empty()) return std::move(items.front());
    if (!options.in_parentheses) return unexpected("an expression");
  }
  return make(line, depth, SequenceLiteral{true, std::move(items)});
}

Result<ExpressionPtr> Parser::postfix(ExpressionPtr node) {
  while (true) {
    if (current().is_op(".")) {
      MF_TRY(node, attribute(std::move(node)));
    } else if (current().is_op("[")) {
      MF_TRY(node, subscript(std::move(node)));
    } else if (current().is_op("(")) {
      MF_TRY(node, call(std::move(node)));
    } else {
      return node;
    }
  }
}

Result<ExpressionPtr> Parser::filters_and_tests(ExpressionPtr node) {
  while (true) {
    if (current().is_op("|")) {
      MF_TRY(node, filter_chain(std::move(node)));
    } else if (current().is_name("is")) {
      MF_TRY(node, test(std::move(node)));
    } else if (current().is_op("(")) {
      MF_TRY(node, call(std::move(node)));
    } else {
      return node;
    }
  }
}

Result<ExpressionPtr> Parser::attribute(ExpressionPtr node) {
  const std::uint32_t line = take().line;
  const std::uint32_t depth = node->depth;
  if (current().type == TokenType::name) return make(line, depth, Attribute{std::move(node), take().text});
  if (current().type != TokenType::integer) return unexpected("a name or a number after '.'");
  MF_TRY(ExpressionPtr key, number());
  return make(line, depth, Item{std::move(node), std::move(key)});
}

Result<ExpressionPtr> Parser::subscript(ExpressionPtr node) {
  const std::uint32_t line = take().line;
  ExpressionPtr begin, end, stride;
  bool is_slice = false;
  std::vector<ExpressionPtr> keys;
  while (!current().is_op("]")) {
    if (!keys.empty() || is_slice) {
      MF_TRY_STATUS(expect_op(","));
      if (is_slice) return error(line, "a slice must be alone in its brackets");
    }
    MF_TRY(ExpressionPtr key, subscript_index(begin, end, stride, is_slice));
    if (is_slice && !keys.empty()) return error(line, "a slice must be alone in its brackets");
    if (!is_slice) keys.push_back(std::move(key));
  }
  MF_TRY_STATUS(expect_op("]"));
  if (is_slice) {
    const std::uint32_t depth = deepest(node, begin, end, stride);
    return make(line, depth, Slice{std::move(node), std::move(begin), std::move(end), std::move(stride)});
  }
  ExpressionPtr key;
  if (keys.size() == 1) {
    key = std::move(keys.front());
  } else {
    std::uint32_t depth = 0;
    for (const ExpressionPtr& one : keys) depth = std::max(depth, one->depth);
    MF_TRY(key, make(line, depth, SequenceLiteral{true, std::move(keys)}));
  }
  const std::uint32_t depth = deepest(node, key);
  return make(line, depth, Item{std::move(node), std::move(key)});
}

// An index, or the bounds of a slice.
Result<ExpressionPtr> Parser::subscript_index(ExpressionPtr& begin, ExpressionPtr& end, ExpressionPtr& stride,
                                              bool& is_slice) {
  ExpressionPtr first;
  if (!current().is_op(":")) {
    MF_TRY(first, expression());
    if (!current().is_op(":")) return first;
  }
  take();
  is_slice = true;
  begin = std::move(first);
  const auto at_end = [&] { return current().is_op("]") || current().is_op(","); };
  if (!current().is_op(":") && !at_end()) {
    MF_TRY(end, expression());
  }
  if (skip_op(":") && !at_end()) {
    MF_TRY(stride, expression());
  }
  return ExpressionPtr();
}

Result<ExpressionPtr> Parser::call(ExpressionPtr node) {
  const std::uint32_t line = current().line;
  std::uint32_t depth = node->depth;
  MF_TRY(CallArguments arguments, call_arguments(depth));
  return make(line, depth, Call{std::move(node), std::move(arguments)});
}

Result<CallArguments> Parser::call_arguments(std::uint32_t& depth_below) {
  MF_TRY_STATUS(expect_op("("));
  CallArguments out;
  bool first = true;
  while (!current().is_op(")")) {
    if (!first) {
      MF_TRY_STATUS(expect_op(","));
      if (current().is_op(")")) break;
    }
    first = false;
    MF_TRY_STATUS(call_argument(out));
  }
  MF_TRY_STATUS(expect_op(")"));
  depth_below = std::max(depth_below, deepest(out.more_positional, out.more_named));
  for (const ExpressionPtr& value : out.positional) depth_below = std::max(depth_below, value->depth);
  for (const auto& [name, value] : out.named) depth_below = std::max(depth_below, value->depth);
  return out;
}

Status Parser::call_argument(CallArguments& arguments) {
  const std::uint32_t line = current().line;
  const Error misplaced = error(line, "this argument must precede the one before it");
  const bool has_more = arguments.more_positional != nullptr || arguments.more_named != nullptr;
  if (skip_op("*")) {
    if (has_more) return misplaced;
    MF_TRY(arguments.more_positional, expression());
  } else if (skip_op("**")) {
    if (arguments.more_named != nullptr) return misplaced;
    MF_TRY(arguments.more_named, expression());
  } else if (current().type == TokenType::name && next_token().is_op("=")) {
    if (arguments.more_named != nullptr) return misplaced;
    const std::string name = take().text;
    take();
    for (const auto& named : arguments.named)
      if (named.first == name)
        return error(line, fmt::format("argument '{}' is given twice", printable(name, 60)));
    MF_TRY(ExpressionPtr value, expression());
    arguments.named.emplace_back(name, std::move(value));
  } else {
    if (has_more || !arguments.named.empty()) return misplaced;
    MF_TRY(ExpressionPtr value, expression());
    arguments.positional.push_back(std::move(value));
  }
  return {};
}

Result<std::string> Parser::dotted_name(std::string_view what) {
  MF_TRY(const Token token, expect(TokenType::name, what));
  std::string name = token.text;
  while (skip_op(".")) {
    MF_TRY(const Token part, expect(TokenType::name, what));
    name += "." + part.text;
  }
  return name;
}

// As in Jinja, an unknown filter or test is a syntax error, except inside a condition, where it may be meant
// for another environment.
Status Parser::known(std::string_view name, bool exists, std::string_view kind, std::uint32_t line) const {
  if (exists || conditional_ > 0) return {};
  return error(line, fmt::format("there is no {} '{}'", kind, printable(name, 60)));
}

Result<ExpressionPtr> Parser::filter(ExpressionPtr node) {
  const std::uint32_t line = current().line;
  MF_TRY(const std::string name, dotted_name("the name of a filter"));
  MF_TRY_STATUS(known(name, is_filter(name), "filter", line));
  std::uint32_t depth = depth_of(node);
  CallArguments arguments;
  if (current().is_op("(")) {
    MF_TRY(arguments, call_arguments(depth));
  }
  return make(line, depth, Filter{std::move(node), name, std::move(arguments)});
}

Result<ExpressionPtr> Parser::filter_chain(ExpressionPtr node) {
  while (skip_op("|")) {
    MF_TRY(node, filter(std::move(node)));
  }
  return node;
}

Result<ExpressionPtr> Parser::test(ExpressionPtr node) {
  const std::uint32_t line = take().line;
  const bool negated = skip_name("not");
  MF_TRY(const std::string name, dotted_name("the name of a test"));
  MF_TRY_STATUS(known(name, is_test(name), "test", line));
  std::uint32_t depth = node->depth;
  CallArguments arguments;
  const Token& token = current();
  if (token.is_op("(")) {
    MF_TRY(arguments, call_arguments(depth));
  } else if ((token.type == TokenType::name && !token.is_name("else") && !token.is_name("or") &&
              !token.is_name("and")) ||
             token.type == TokenType::string || token.type == TokenType::integer ||
             token.type == TokenType::real || token.is_op("[") || token.is_op("{")) {
    if (token.is_name("is")) return error(token.line, "tests cannot be chained with 'is'");
    MF_TRY_STATUS(enter());
    MF_TRY(ExpressionPtr argument, primary());
    MF_TRY(argument, postfix(std::move(argument)));
    leave();
    depth = std::max(depth, argument->depth);
    arguments.positional.push_back(std::move(argument));
  }
  MF_TRY(ExpressionPtr out, make(line, depth, IsTest{std::move(node), name, std::move(arguments)}));
  if (!negated) return out;
  depth = out->depth;
  return make(line, depth, Unary{UnaryOperator::logical_not, std::move(out)});
}

}  // namespace moeflux::jinja
