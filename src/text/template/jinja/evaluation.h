#pragma once
// An Evaluation is one rendering of one template: its names, output and budget.
//
// It walks the tree and writes to the innermost open output: of the template, a macro or a captured block. An
// error ends the rendering; the innermost node that has a line prefixes the message with it. Used once, by
// one thread. Refers to the template, which outlives it.

#include <cstddef>
#include <ctime>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/function_ref.h"
#include "text/template/jinja/builtins/callable.h"
#include "text/template/jinja/limits.h"
#include "text/template/jinja/syntax/ast.h"
#include "text/template/jinja/value.h"

namespace moeflux::jinja {

class Evaluation {
 public:
  // `now`: the local time for strftime_now(), which fails without it.
  Evaluation(const Ast& ast, const Limits& limits, std::optional<std::tm> now);
  ~Evaluation();
  Evaluation(const Evaluation&) = delete;
  Evaluation& operator=(const Evaluation&) = delete;

  // Defines a variable. Must precede run(). `name` outlives the evaluation.
  void define(std::string_view name, Value value) { top_->names.insert_or_assign(name, std::move(value)); }
  // Stores the size of the output at the first use of variable `name` (see Variables). Must precede run().
  // Both arguments outlive the evaluation.
  void watch(std::string_view name, std::size_t& first_use) { watched_ = name, first_use_ = &first_use; }
  Result<MarkedText> run();

  // For filters, tests and methods.
  const Heap& heap() const { return heap_; }
  Budget& budget() { return budget_; }
  const std::optional<std::tm>& now() const { return now_; }
  Result<Value> call(const Value& function, Arguments arguments);
  Result<Value> attribute(const Value& object, std::string_view name);  // x.name
  Result<Value> item(const Value& object, const Value& key);            // x[key]
  // Enclose everything that may recurse into the evaluation, to bound the recursion of any template.
  Status deeper();
  void shallower() { --nesting_; }
  // Namespaces live until the end of the evaluation, which breaks their cycles.
  Result<Value> make_namespace(std::vector<std::pair<std::string, Value>> entries);

 private:
  enum class Flow { next, break_loop, continue_loop };

  // Statements.
  Result<Flow> execute(const Body& body);
  Result<Flow> execute(const Statement& statement);
  Result<Flow> run_statement(const Statement& statement);
  Result<Flow> execute(const If& statement);
  Status execute(const For& statement);
  Status run_loop(const For& statement, const Value& iterable, std::uint32_t level);
  // True if an iteration ran to its end.
  Result<bool> run_loop_turns(const For& statement, const Value& loop, const std::shared_ptr<Scope>& outer);
  Result<std::vector<Value>> loop_items(const For& statement, const Value& iterable);
  Status execute(const SetBlock& statement);
  Status execute(const CallBlock& statement);
  Status execute(const FilterBlock& statement);
  Result<Flow> execute(const With& statement);
  Result<Flow> execute_scoped(const Body& body, const HiddenNames& hidden);
  Status print(const Value& value);
  Status assign(const Target& target, Value value);
  Status set_namespace(const Target& target, Value value);
  // The output of `body`, which runs in its own scope.
  Result<Value> captured(FunctionRef<Status()> body);

  // Expressions.
  Result<Value> evaluate(const Expression& expression);
  Result<Value> value_of(const Constant& node);
  Result<Value> value_of(const Name& node);
  Value looked_up(const Name& node);
  Result<Value> value_of(const Attribute& node);
  Result<Value> value_of(const Item& node);
  Result<Value> value_of(const Slice& node);
  Result<Value> value_of(const Call& node);
  Result<Value> value_of(const Filter& node);
  Result<Value> value_of(const IsTest& node);
  Result<Value> value_of(const Unary& node);
  Result<Value> value_of(const Arithmetic& node);
  Result<Value> value_of(const Comparison& node);
  Result<Value> value_of(const Logic& node);
  Result<Value> value_of(const Concatenation& node);
  Result<Value> value_of(const Conditional& node);
  Result<Value> value_of(const SequenceLiteral& node);
  Result<Value> value_of(const DictLiteral& node);
  Result<bool> compare(CompareOperator op, const Value& a, const Value& b);
  Result<Value> filtered(const Expression& filter, const Value& input);
  Result<Arguments> arguments_of(const CallArguments& nodes);

  // Calls.
  Result<Value> make_macro(const Macro& macro);
  Result<Value> call_macro(const CallableObject& macro, Arguments arguments);
  Status bind_macro(const Macro& macro, Arguments arguments);
  Result<Value> call_function(std::string_view name, const Arguments& arguments);
  Result<Value> call_loop(const Value& loop, const Arguments& arguments);
  Result<std::optional<Value>> loop_attribute(const Value& loop, std::string_view name);
  Result<std::optional<Value>> python_attribute(const Value& object, std::string_view name);
  Result<Value> make_method(const Value& self, std::string_view name);

  void note_use(std::string_view name);
  Error located(Error error, std::uint32_t line);
  std::shared_ptr<Scope> inner_scope() const;
  void hide(const HiddenNames& names);

  const Ast& ast_;
  Budget budget_;  // declared before all values, which return their memory to it
  Heap heap_;
  const std::optional<std::tm> now_;
  std::shared_ptr<Scope> top_;
  std::shared_ptr<Scope> scope_;
  TextBuilder output_;            // the innermost open output
  std::uint32_t captures_ = 0;    // open outputs inside the template's
  std::size_t size_outside_ = 0;  // of the template's output, while there are captures
  std::string_view watched_;      // the watched variable; empty from its first use on
  std::size_t* first_use_ = nullptr;
  std::uint32_t nesting_ = 0;  // nesting of this class's functions
  std::uint32_t calls_ = 0;    // nesting of macro calls
  bool located_ = false;       // the error being returned already has its line
  // Everything that can be part of a cycle. The destructor clears it.
  std::vector<std::shared_ptr<NamespaceObject>> namespaces_;
  std::vector<std::shared_ptr<Scope>> captured_scopes_;
  std::vector<std::shared_ptr<Object>> loops_;
};

}  // namespace moeflux::jinja
