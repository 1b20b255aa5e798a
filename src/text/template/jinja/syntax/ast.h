#pragma once
// The syntax tree of a template: statements and expressions, each with its line.
//
// A chain of one precedence (a + b - c) is one node with many operands, so the depth of the tree is the
// nesting of the source, which the parser bounds. Immutable after parsing, thread-safe.

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "text/template/jinja/value.h"

namespace moeflux::jinja {

struct Expression;
using ExpressionPtr = std::unique_ptr<Expression>;

struct CallArguments {
  std::vector<ExpressionPtr> positional;
  std::vector<std::pair<std::string, ExpressionPtr>> named;
  ExpressionPtr more_positional;  // *args
  ExpressionPtr more_named;       // **kwargs
};

struct Constant {
  Value value;
};
struct Name {
  std::string name;
};
struct Attribute {
  ExpressionPtr object;
  std::string name;
};
struct Item {
  ExpressionPtr object;
  ExpressionPtr key;
};
struct Slice {  // any bound may be absent
  ExpressionPtr object;
  ExpressionPtr begin, end, stride;
};
struct Call {
  ExpressionPtr function;
  CallArguments arguments;
};
struct Filter {
  ExpressionPtr input;  // absent in a filter block and in {% set x | filter %}
  std::string name;
  CallArguments arguments;
};
struct IsTest {
  ExpressionPtr input;
  std::string name;
  CallArguments arguments;
};

enum class UnaryOperator : std::uint8_t { logical_not, minus, plus };
struct Unary {
  UnaryOperator op;
  ExpressionPtr operand;
};

enum class ArithmeticOperator : std::uint8_t { add, subtract, multiply, divide, floor_divide, modulo, power };
struct Arithmetic {  // left to right
  ExpressionPtr first;
  std::vector<std::pair<ArithmeticOperator, ExpressionPtr>> rest;
};

enum class CompareOperator : std::uint8_t {
  equal,
  not_equal,
  less,
  less_equal,
  greater,
  greater_equal,
  in,
  not_in
};
struct Comparison {
  ExpressionPtr first;
  std::vector<std::pair<CompareOperator, ExpressionPtr>> rest;
};

struct Logic {  // operands joined by `and` only, or by `or` only
  bool is_and;
  std::vector<ExpressionPtr> operands;
};
struct Concatenation {
  std::vector<ExpressionPtr> operands;
};
struct Conditional {
  ExpressionPtr test, then, otherwise;  // otherwise may be absent
};
struct SequenceLiteral {
  bool is_tuple;
  std::vector<ExpressionPtr> items;
};
struct DictLiteral {
  std::vector<std::pair<ExpressionPtr, ExpressionPtr>> entries;
};

struct Expression {
  std::uint32_t line;
  std::uint32_t depth;  // of the tree below
  std::variant<Constant, Name, Attribute, Item, Slice, Call, Filter, IsTest, Unary, Arithmetic, Comparison,
               Logic, Concatenation, Conditional, SequenceLiteral, DictLiteral>
      node;
};

// The target of an assignment: a name, an attribute of a namespace, or a tuple of targets.
struct Target {
  std::string name;
  std::string attribute;      // empty: a plain name
  std::vector<Target> parts;  // not empty: a tuple; `name` and `attribute` are unused
};

struct Statement;
using Body = std::vector<Statement>;
// Names that are undefined at the beginning of a block even if an outer block defines them (scoping.h).
using HiddenNames = std::vector<std::string>;

struct Data {
  Value text;
};
struct Print {
  ExpressionPtr value;
};
struct If {
  std::vector<std::pair<ExpressionPtr, Body>> branches;
  Body otherwise;
};
struct For {
  Target target;
  ExpressionPtr iterable;
  ExpressionPtr condition;  // may be absent
  bool recursive;
  Body body;
  Body otherwise;
  HiddenNames hidden, hidden_otherwise;
};
struct Set {
  Target target;
  ExpressionPtr value;
};
struct SetBlock {
  Target target;
  ExpressionPtr filter;  // a chain of Filters, or absent
  Body body;
  HiddenNames hidden;
};
struct Signature {
  std::vector<std::string> names;
  std::vector<ExpressionPtr> defaults;  // of the last `names`
};
struct Macro {
  std::string name;
  Signature signature;
  Body body;
  bool uses_caller, uses_varargs, uses_kwargs;
  HiddenNames hidden;
};
struct CallBlock {
  ExpressionPtr call;  // a Call
  Macro caller;
};
struct FilterBlock {
  ExpressionPtr filter;
  Body body;
  HiddenNames hidden;
};
struct With {
  std::vector<std::pair<Target, ExpressionPtr>> bindings;
  Body body;
  HiddenNames hidden;
};
struct Generation {  // marks text that a model is trained on; renders its body
  Body body;
  HiddenNames hidden;
};
struct Break {};
struct Continue {};

struct Statement {
  std::uint32_t line;
  std::variant<Data, Print, If, For, Set, SetBlock, Macro, CallBlock, FilterBlock, With, Generation, Break,
               Continue>
      node;
};

struct Ast {
  std::string name;  // in error messages
  Body body;
  HiddenNames hidden;
};

}  // namespace moeflux::jinja
