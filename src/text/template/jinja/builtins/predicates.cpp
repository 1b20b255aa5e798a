#include "text/template/jinja/builtins/predicates.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "base/printable.h"
#include "text/template/jinja/binding.h"
#include "text/template/jinja/builtins/characters.h"
#include "text/template/jinja/builtins/filters.h"
#include "text/template/jinja/builtins/formatting.h"
#include "text/template/jinja/evaluation.h"
#include "text/template/jinja/operators.h"

namespace moeflux::jinja {
namespace {

constexpr std::string_view kTests[] = {
    "odd",     "even",   "divisibleby", "defined",  "undefined", "filter", "test",    "none",
    "boolean", "false",  "true",        "integer",  "float",     "lower",  "upper",   "string",
    "mapping", "number", "sequence",    "iterable", "callable",  "sameas", "escaped", "in",
    "==",      "eq",     "equalto",     "!=",       "ne",        ">",      "gt",      "greaterthan",
    "ge",      ">=",     "<",           "lt",       "lessthan",  "<=",     "le"};

using Compare = bool (*)(std::partial_ordering);

struct OrderTest {
  std::string_view names[3];
  Compare holds;
};

constexpr OrderTest kOrderTests[] = {
    {{">", "gt", "greaterthan"}, [](std::partial_ordering o) { return o > 0; }},
    {{">=", "ge", ""}, [](std::partial_ordering o) { return o >= 0; }},
    {{"<", "lt", "lessthan"}, [](std::partial_ordering o) { return o < 0; }},
    {{"<=", "le", ""}, [](std::partial_ordering o) { return o <= 0; }},
};

// All cased letters have one case, and there is at least one.
bool all_of_case(std::string_view text, bool (*of_case)(char32_t)) {
  bool any = false;
  for (std::size_t at = 0; at < text.size();) {
    const CodePoint point = code_point_at(text, at);
    if (is_cased(point.value)) {
      if (!of_case(point.value)) return false;
      any = true;
    }
    at += point.bytes;
  }
  return any;
}

Result<bool> has_case(Evaluation& evaluation, const Value& input, bool (*of_case)(char32_t)) {
  MF_TRY(const Value text, str(input, evaluation.heap()));
  MF_TRY_STATUS(evaluation.budget().work(text.bytes().size()));
  return all_of_case(text.bytes(), of_case);
}

Result<bool> divisible(Evaluation& evaluation, const Value& input, const Value& by) {
  MF_TRY(const Value rest, arithmetic(ArithmeticOperator::modulo, input, by, evaluation.heap()));
  return equal(rest, Value::integer(0), evaluation.budget());
}

// Tests without an argument.
std::optional<bool> plain(std::string_view name, const Value& input) {
  if (name == "defined") return !input.is_undefined();
  if (name == "undefined") return input.is_undefined();
  if (name == "none") return input.is_none();
  if (name == "boolean") return input.is(Kind::boolean);
  if (name == "true") return input.is(Kind::boolean) && input.as_boolean();
  if (name == "false") return input.is(Kind::boolean) && !input.as_boolean();
  if (name == "integer") return input.is(Kind::integer);
  if (name == "float") return input.is(Kind::real);
  if (name == "number") return input.is_number();
  if (name == "string") return input.is_string();
  if (name == "mapping") return input.is_dict();
  if (name == "iterable") return is_iterable(input);
  // Has a length and elements by key. In Jinja a dict is a sequence and its views are not.
  if (name == "sequence")
    return input.is_undefined() || input.is_string() || input.is_dict() ||
           input.is_sequence(SequenceKind::list) || input.is_sequence(SequenceKind::tuple) ||
           input.is_sequence(SequenceKind::range);
  if (name == "callable") return input.is(Kind::callable) || input.is(Kind::loop) || input.is_undefined();
  if (name == "escaped") return false;
  return std::nullopt;
}

}  // namespace

bool is_test(std::string_view name) {
  return std::find(std::begin(kTests), std::end(kTests), name) != std::end(kTests);
}

Result<bool> apply_test(Evaluation& evaluation, std::string_view name, const Value& input,
                        const Arguments& arguments) {
  if (const std::optional<bool> answer = plain(name, input)) {
    MF_TRY_STATUS(bind(name, arguments, {}));
    return *answer;
  }
  if (name == "lower" || name == "upper") {
    MF_TRY_STATUS(bind(name, arguments, {}));
    return has_case(evaluation, input, name == "lower" ? is_lower : is_upper);
  }
  if (name == "odd" || name == "even") {
    MF_TRY_STATUS(bind(name, arguments, {}));
    MF_TRY(const Value rest,
           arithmetic(ArithmeticOperator::modulo, input, Value::integer(2), evaluation.heap()));
    return equal(rest, Value::integer(name == "odd" ? 1 : 0), evaluation.budget());
  }
  if (name == "filter" || name == "test") {
    MF_TRY_STATUS(bind(name, arguments, {}));
    return input.is_string() && (name == "filter" ? is_filter(input.bytes()) : is_test(input.bytes()));
  }
  if (!is_test(name)) return type_error(fmt::format("there is no test '{}'", printable(name, 60)));
  MF_TRY(const Bound bound, bind(name, arguments,
                                 {name == "divisibleby" ? "num"
                                  : name == "in"        ? "seq"
                                                        : "other"},
                                 1));
  const Value& other = *bound[0];
  if (name == "divisibleby") return divisible(evaluation, input, other);
  if (name == "in") return contains(other, input, evaluation.budget());
  if (name == "sameas") return input.same(other);
  if (name == "==" || name == "eq" || name == "equalto") return equal(input, other, evaluation.budget());
  if (name == "!=" || name == "ne") {
    MF_TRY(const bool same, equal(input, other, evaluation.budget()));
    return !same;
  }
  MF_TRY(const std::partial_ordering ordering, order(input, other, evaluation.budget()));
  for (const OrderTest& test : kOrderTests)
    if (std::find(std::begin(test.names), std::end(test.names), name) != std::end(test.names))
      return test.holds(ordering);
  return type_error(fmt::format("there is no test '{}'", printable(name, 60)));
}

}  // namespace moeflux::jinja
