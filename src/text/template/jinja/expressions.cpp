// Evaluates expressions.

#include <fmt/format.h>

#include "base/printable.h"
#include "text/template/jinja/builtins/filters.h"
#include "text/template/jinja/builtins/formatting.h"
#include "text/template/jinja/builtins/predicates.h"
#include "text/template/jinja/evaluation.h"
#include "text/template/jinja/operators.h"

namespace moeflux::jinja {

Result<Value> Evaluation::evaluate(const Expression& expression) {
  Status allowed = budget_.step();
  if (allowed) allowed = deeper();
  if (!allowed) return located(std::move(allowed).error(), expression.line);
  Result<Value> out = std::visit([&](const auto& node) { return value_of(node); }, expression.node);
  shallower();
  if (!out) return located(std::move(out).error(), expression.line);
  return out;
}

Result<Value> Evaluation::value_of(const Constant& node) { return node.value; }

Result<Value> Evaluation::value_of(const Name& node) {
  note_use(node.name);
  return looked_up(node);
}

Value Evaluation::looked_up(const Name& node) {
  if (const Value* found = scope_->find(node.name)) return *found;
  for (const std::string_view function : {"range", "dict", "namespace", "raise_exception", "strftime_now"}) {
    if (node.name != function) continue;
    auto object = std::make_shared<CallableObject>();
    object->name = node.name;
    return Value(Kind::callable, std::move(object));
  }
  return Heap::undefined(fmt::format("'{}' is undefined", printable(node.name, 60)));
}

Result<Value> Evaluation::value_of(const Attribute& node) {
  MF_TRY(const Value object, evaluate(*node.object));
  return attribute(object, node.name);
}

Result<Value> Evaluation::value_of(const Item& node) {
  MF_TRY(const Value object, evaluate(*node.object));
  MF_TRY(const Value key, evaluate(*node.key));
  return item(object, key);
}

Result<Value> Evaluation::value_of(const Slice& node) {
  MF_TRY(const Value object, evaluate(*node.object));
  SliceBounds bounds;
  const auto bound = [&](const ExpressionPtr& expression, Value& out) -> Status {
    if (expression == nullptr) return {};
    MF_TRY(out, evaluate(*expression));
    return {};
  };
  MF_TRY_STATUS(bound(node.begin, bounds.begin));
  MF_TRY_STATUS(bound(node.end, bounds.end));
  MF_TRY_STATUS(bound(node.stride, bounds.stride));
  return slice_of(object, bounds, heap_);
}

Result<Value> Evaluation::value_of(const Call& node) {
  MF_TRY(const Value function, evaluate(*node.function));
  MF_TRY(Arguments arguments, arguments_of(node.arguments));
  return call(function, std::move(arguments));
}

Result<Arguments> Evaluation::arguments_of(const CallArguments& nodes) {
  Arguments out;
  for (const ExpressionPtr& expression : nodes.positional) {
    MF_TRY(Value value, evaluate(*expression));
    out.positional.push_back(std::move(value));
  }
  if (nodes.more_positional != nullptr) {
    MF_TRY(const Value more, evaluate(*nodes.more_positional));
    MF_TRY(std::vector<Value> values, elements(more, heap_));
    for (Value& value : values) out.positional.push_back(std::move(value));
  }
  for (const auto& [name, expression] : nodes.named) {
    MF_TRY(Value value, evaluate(*expression));
    out.named.emplace_back(name, std::move(value));
  }
  if (nodes.more_named == nullptr) return out;
  MF_TRY(const Value more, evaluate(*nodes.more_named));
  if (!more.is_dict()) return type_error(fmt::format("'**' expects a dict, not a '{}'", type_name(more)));
  for (const auto& [key, value] : more.dict().entries) {
    if (!key.is_string()) return type_error("the names of arguments are strings");
    for (const auto& named : out.named) {
      MF_TRY_STATUS(budget_.step());
      if (named.first == key.bytes())
        return type_error(fmt::format("argument '{}' is given twice", printable(key.bytes(), 60)));
    }
    out.named.emplace_back(key.bytes(), value);
  }
  return out;
}

Result<Value> Evaluation::value_of(const Filter& node) {
  MF_TRY(const Value input, evaluate(*node.input));
  MF_TRY(const Arguments arguments, arguments_of(node.arguments));
  return apply_filter(*this, node.name, input, arguments);
}

// A chain of filters on a text instead of an expression.
Result<Value> Evaluation::filtered(const Expression& filter, const Value& input) {
  const auto& node = std::get<Filter>(filter.node);
  MF_TRY_STATUS(deeper());
  Value value = input;
  if (node.input != nullptr) {
    MF_TRY(value, filtered(*node.input, input));
  }
  MF_TRY(const Arguments arguments, arguments_of(node.arguments));
  Result<Value> out = apply_filter(*this, node.name, value, arguments);
  shallower();
  if (!out) return located(std::move(out).error(), filter.line);
  return out;
}

Result<Value> Evaluation::value_of(const IsTest& node) {
  // Whether a name is defined does not depend on its value.
  const bool is_use = node.name != "defined" && node.name != "undefined";
  const auto* name = std::get_if<Name>(&node.input->node);
  MF_TRY(const Value input,
         !is_use && name != nullptr ? Result<Value>(looked_up(*name)) : evaluate(*node.input));
  MF_TRY(const Arguments arguments, arguments_of(node.arguments));
  MF_TRY(const bool passes, apply_test(*this, node.name, input, arguments));
  return Value::boolean(passes);
}

Result<Value> Evaluation::value_of(const Unary& node) {
  MF_TRY(const Value operand, evaluate(*node.operand));
  if (node.op == UnaryOperator::logical_not) return Value::boolean(!truth(operand));
  if (operand.is_undefined()) return undefined_error(operand);
  if (!operand.is_number()) return type_error(fmt::format("a '{}' has no sign", type_name(operand)));
  if (node.op == UnaryOperator::minus) return negative(operand);
  if (operand.is(Kind::boolean)) return Value::integer(operand.as_integer(), operand.is_data());
  return operand;
}

Result<Value> Evaluation::value_of(const Arithmetic& node) {
  MF_TRY(Value out, evaluate(*node.first));
  for (const auto& [op, expression] : node.rest) {
    MF_TRY(const Value operand, evaluate(*expression));
    MF_TRY(out, arithmetic(op, out, operand, heap_));
  }
  return out;
}

Result<bool> Evaluation::compare(CompareOperator op, const Value& a, const Value& b) {
  switch (op) {
    case CompareOperator::equal: return equal(a, b, budget_);
    case CompareOperator::in: return contains(b, a, budget_);
    case CompareOperator::not_equal: {
      MF_TRY(const bool same, equal(a, b, budget_));
      return !same;
    }
    case CompareOperator::not_in: {
      MF_TRY(const bool inside, contains(b, a, budget_));
      return !inside;
    }
    default: break;
  }
  MF_TRY(const std::partial_ordering ordering, order(a, b, budget_));
  switch (op) {
    case CompareOperator::less: return ordering < 0;
    case CompareOperator::less_equal: return ordering <= 0;
    case CompareOperator::greater: return ordering > 0;
    default: return ordering >= 0;
  }
}

Result<Value> Evaluation::value_of(const Comparison& node) {
  MF_TRY(Value left, evaluate(*node.first));
  for (const auto& [op, expression] : node.rest) {
    MF_TRY(Value right, evaluate(*expression));
    MF_TRY(const bool holds, compare(op, left, right));
    if (!holds) return Value::boolean(false);
    left = std::move(right);
  }
  return Value::boolean(true);
}

Result<Value> Evaluation::value_of(const Logic& node) {
  for (std::size_t i = 0; i + 1 < node.operands.size(); ++i) {
    MF_TRY(Value operand, evaluate(*node.operands[i]));
    if (truth(operand) != node.is_and) return operand;
  }
  return evaluate(*node.operands.back());
}

Result<Value> Evaluation::value_of(const Concatenation& node) {
  // Evaluates all operands before building the text: values are charged to the budget, but open builders are
  // not, and nested concatenations would keep many of them open.
  std::vector<Value> operands;
  operands.reserve(node.operands.size());
  for (const ExpressionPtr& expression : node.operands) {
    MF_TRY(Value operand, evaluate(*expression));
    operands.push_back(std::move(operand));
  }
  TextBuilder out = heap_.builder();
  for (const Value& operand : operands) MF_TRY_STATUS(add_str(out, operand, budget_));
  return heap_.string(std::move(out));
}

Result<Value> Evaluation::value_of(const Conditional& node) {
  MF_TRY(const Value test, evaluate(*node.test));
  if (truth(test)) return evaluate(*node.then);
  if (node.otherwise != nullptr) return evaluate(*node.otherwise);
  return Heap::undefined("the inline if-expression has no else, and its condition is false");
}

Result<Value> Evaluation::value_of(const SequenceLiteral& node) {
  std::vector<Value> items;
  items.reserve(node.items.size());
  for (const ExpressionPtr& expression : node.items) {
    MF_TRY(Value value, evaluate(*expression));
    items.push_back(std::move(value));
  }
  return heap_.sequence(std::move(items), node.is_tuple ? SequenceKind::tuple : SequenceKind::list);
}

Result<Value> Evaluation::value_of(const DictLiteral& node) {
  std::vector<std::pair<Value, Value>> entries;
  entries.reserve(node.entries.size());
  for (const auto& [key_expression, value_expression] : node.entries) {
    MF_TRY(Value key, evaluate(*key_expression));
    MF_TRY(Value value, evaluate(*value_expression));
    entries.emplace_back(std::move(key), std::move(value));
  }
  return heap_.dict(std::move(entries));
}

}  // namespace moeflux::jinja
