#include "text/template/jinja/evaluation.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/overloaded.h"
#include "base/printable.h"
#include "text/template/jinja/builtins/formatting.h"

namespace moeflux::jinja {
namespace {

// The nesting of evaluation functions, two or three per level of the template. Fits the stack of a thread
// even in a build with sanitizers.
constexpr std::uint32_t kDeepestNesting = 1000;
// The memory of a captured scope, macro or namespace besides its values.
constexpr std::size_t kRememberedBytes = 512;

}  // namespace

Evaluation::Evaluation(const Ast& ast, const Limits& limits, std::optional<std::tm> now)
    : ast_(ast),
      budget_(limits),
      heap_(budget_),
      now_(now),
      top_(std::make_shared<Scope>()),
      scope_(top_),
      output_(limits.string_bytes) {}

Evaluation::~Evaluation() {
  // These lists hold every object that can contain itself, so clearing one object never destroys the next.
  for (const auto& one : namespaces_) one->entries.clear();
  for (const auto& one : captured_scopes_) one->names.clear();
  for (const auto& one : loops_) {
    auto& loop = static_cast<LoopObject&>(*one);
    loop.items.clear();
    loop.last_changed.clear();
    loop.scope.reset();
  }
}

Result<MarkedText> Evaluation::run() {
  // The template sets names in a scope above the variables.
  scope_ = inner_scope();
  hide(ast_.hidden);
  MF_TRY_STATUS(execute(ast_.body));
  return output_.take();
}

void Evaluation::note_use(std::string_view name) {
  if (watched_.empty() || name != watched_) return;
  *first_use_ = captures_ == 0 ? output_.size() : size_outside_;
  watched_ = {};
}

Error Evaluation::located(Error error, std::uint32_t line) {
  if (located_) return error;
  located_ = true;
  return Error(error.code(), fmt::format("{}:{}: {}", ast_.name, line, error.message()));
}

Status Evaluation::deeper() {
  if (++nesting_ <= kDeepestNesting) return {};
  return Error(ErrorCode::unsupported, "the template nests its calls and blocks too deeply");
}

std::shared_ptr<Scope> Evaluation::inner_scope() const {
  auto out = std::make_shared<Scope>();
  out->parent = scope_;
  return out;
}

// Hides names in the new scope of a block.
void Evaluation::hide(const HiddenNames& names) {
  for (const std::string& name : names)
    scope_->names.emplace(name, Heap::undefined(fmt::format("'{}' is undefined", printable(name, 60))));
}

Result<Evaluation::Flow> Evaluation::execute(const Body& body) {
  for (const Statement& statement : body) {
    MF_TRY(const Flow flow, execute(statement));
    if (flow != Flow::next) return flow;
  }
  return Flow::next;
}

Result<Evaluation::Flow> Evaluation::execute(const Statement& statement) {
  Status allowed = budget_.step();
  if (allowed) allowed = deeper();
  if (!allowed) return located(std::move(allowed).error(), statement.line);
  Result<Flow> out = run_statement(statement);
  shallower();
  if (!out) return located(std::move(out).error(), statement.line);
  return out;
}

Result<Evaluation::Flow> Evaluation::run_statement(const Statement& statement) {
  const auto done = [](Status status) -> Result<Flow> {
    if (!status) return std::move(status).error();
    return Flow::next;
  };
  const auto set = [&](const Set& node) -> Status {
    MF_TRY(Value value, evaluate(*node.value));
    return assign(node.target, std::move(value));
  };
  const auto macro = [&](const Macro& node) -> Status {
    MF_TRY(Value value, make_macro(node));
    scope_->names.insert_or_assign(node.name, std::move(value));
    return {};
  };
  const auto evaluated = [&](const Print& node) -> Status {
    MF_TRY(const Value value, evaluate(*node.value));
    return print(value);
  };
  return std::visit(overloaded{
                        [&](const Data& node) { return done(print(node.text)); },
                        [&](const Print& node) { return done(evaluated(node)); },
                        [&](const If& node) { return execute(node); },
                        [&](const For& node) { return done(execute(node)); },
                        [&](const Set& node) { return done(set(node)); },
                        [&](const SetBlock& node) { return done(execute(node)); },
                        [&](const Macro& node) { return done(macro(node)); },
                        [&](const CallBlock& node) { return done(execute(node)); },
                        [&](const FilterBlock& node) { return done(execute(node)); },
                        [&](const With& node) { return execute(node); },
                        [&](const Generation& node) { return execute_scoped(node.body, node.hidden); },
                        [&](const Break&) { return Result<Flow>(Flow::break_loop); },
                        [&](const Continue&) { return Result<Flow>(Flow::continue_loop); },
                    },
                    statement.node);
}

Status Evaluation::print(const Value& value) {
  MF_TRY_STATUS(add_str(output_, value, budget_));
  if (output_.over()) return budget_.too_long();
  return {};
}

Result<Evaluation::Flow> Evaluation::execute(const If& statement) {
  for (const auto& [test, then] : statement.branches) {
    MF_TRY(const Value value, evaluate(*test));
    if (truth(value)) return execute(then);
  }
  return execute(statement.otherwise);
}

Status Evaluation::execute(const For& statement) {
  MF_TRY(const Value iterable, evaluate(*statement.iterable));
  return run_loop(statement, iterable, 0);
}

// The elements that satisfy the loop's condition.
Result<std::vector<Value>> Evaluation::loop_items(const For& statement, const Value& iterable) {
  MF_TRY(std::vector<Value> items, elements(iterable, heap_));
  if (statement.condition == nullptr) return items;
  const std::shared_ptr<Scope> outer = scope_;
  std::vector<Value> kept;
  for (Value& item : items) {
    scope_ = std::make_shared<Scope>();
    scope_->parent = outer;
    MF_TRY_STATUS(assign(statement.target, item));
    MF_TRY(const Value passes, evaluate(*statement.condition));
    if (truth(passes)) kept.push_back(std::move(item));
  }
  scope_ = outer;
  return kept;
}

Status Evaluation::run_loop(const For& statement, const Value& iterable, std::uint32_t level) {
  auto loop = std::make_shared<LoopObject>();
  MF_TRY(loop->items, loop_items(statement, iterable));
  for (const Value& item : loop->items) loop->depth = std::max(loop->depth, item.depth());
  ++loop->depth;
  loop->level = level;
  loop->statement = &statement;
  loop->scope = scope_;
  MF_TRY_STATUS(heap_.admit(*loop, sizeof(LoopObject) + loop->items.size() * sizeof(Value)));
  const std::shared_ptr<Scope> outer = scope_;
  const Value value(Kind::loop, loop);
  MF_TRY(const bool any, run_loop_turns(statement, value, outer));
  scope_ = outer;
  // As in Jinja, also if every iteration ended in `break` or `continue`.
  if (!any) MF_TRY_STATUS(execute_scoped(statement.otherwise, statement.hidden_otherwise));
  return {};
}

Result<bool> Evaluation::run_loop_turns(const For& statement, const Value& loop,
                                        const std::shared_ptr<Scope>& outer) {
  LoopObject& state = loop.loop();
  bool any = false;
  for (state.at = 0; state.at < state.items.size(); ++state.at) {
    scope_ = std::make_shared<Scope>();
    scope_->parent = outer;
    scope_->names.emplace("loop", loop);
    hide(statement.hidden);
    MF_TRY_STATUS(budget_.step());
    MF_TRY_STATUS(assign(statement.target, state.items[state.at]));
    MF_TRY(const Flow flow, execute(statement.body));
    if (flow == Flow::break_loop) break;
    any |= flow == Flow::next;
  }
  return any;
}

Status Evaluation::assign(const Target& target, Value value) {
  if (!target.attribute.empty()) return set_namespace(target, std::move(value));
  if (target.parts.empty()) {
    scope_->names.insert_or_assign(target.name, std::move(value));
    return {};
  }
  MF_TRY(std::vector<Value> items, elements(value, heap_));
  if (items.size() != target.parts.size()) {
    return type_error(
        fmt::format("{} values cannot be assigned to {} names", items.size(), target.parts.size()));
  }
  for (std::size_t i = 0; i < items.size(); ++i) MF_TRY_STATUS(assign(target.parts[i], std::move(items[i])));
  return {};
}

Status Evaluation::set_namespace(const Target& target, Value value) {
  const Value* found = scope_->find(target.name);
  if (found == nullptr || !found->is(Kind::name_space))
    return type_error(fmt::format("only attributes of a namespace can be set, and '{}' is none",
                                  printable(target.name, 60)));
  NamespaceObject& object = found->name_space();
  for (auto& entry : object.entries) {
    if (entry.first != target.attribute) continue;
    entry.second = std::move(value);
    return {};
  }
  object.entries.emplace_back(target.attribute, std::move(value));
  return {};
}

Result<Value> Evaluation::captured(FunctionRef<Status()> body) {
  if (captures_++ == 0) size_outside_ = output_.size();
  TextBuilder outer = std::move(output_);
  output_ = TextBuilder(outer.left());  // the limit applies to all open outputs together
  const std::shared_ptr<Scope> scope = scope_;
  scope_ = inner_scope();
  MF_TRY_STATUS(body());
  scope_ = scope;
  std::swap(outer, output_);
  --captures_;
  return heap_.string(std::move(outer));
}

Result<Evaluation::Flow> Evaluation::execute_scoped(const Body& body, const HiddenNames& hidden) {
  const std::shared_ptr<Scope> outer = scope_;
  scope_ = inner_scope();
  hide(hidden);
  Result<Flow> flow = execute(body);
  scope_ = outer;
  return flow;
}

Status Evaluation::execute(const SetBlock& statement) {
  MF_TRY(Value text, captured([&]() -> Status {
           hide(statement.hidden);
           MF_TRY_STATUS(execute(statement.body));
           return {};
         }));
  if (statement.filter != nullptr) {
    MF_TRY(text, filtered(*statement.filter, text));
  }
  return assign(statement.target, std::move(text));
}

Status Evaluation::execute(const FilterBlock& statement) {
  MF_TRY(const Value text, captured([&]() -> Status {
           hide(statement.hidden);
           MF_TRY_STATUS(execute(statement.body));
           return {};
         }));
  MF_TRY(const Value out, filtered(*statement.filter, text));
  return print(out);
}

Status Evaluation::execute(const CallBlock& statement) {
  const auto& call_node = std::get<Call>(statement.call->node);
  MF_TRY(const Value function, evaluate(*call_node.function));
  MF_TRY(Arguments arguments, arguments_of(call_node.arguments));
  MF_TRY(Value caller, make_macro(statement.caller));
  arguments.named.emplace_back("caller", std::move(caller));
  MF_TRY(const Value out, call(function, std::move(arguments)));
  return print(out);
}

Result<Evaluation::Flow> Evaluation::execute(const With& statement) {
  const std::shared_ptr<Scope> outer = scope_;
  const std::shared_ptr<Scope> inner = inner_scope();
  for (const auto& [target, expression] : statement.bindings) {
    scope_ = outer;
    MF_TRY(Value value, evaluate(*expression));
    scope_ = inner;
    MF_TRY_STATUS(assign(target, std::move(value)));
  }
  scope_ = inner;
  hide(statement.hidden);
  Result<Flow> flow = execute(statement.body);
  scope_ = outer;
  return flow;
}

Result<Value> Evaluation::make_macro(const Macro& macro) {
  auto object = std::make_shared<CallableObject>();
  object->type = CallableObject::Type::macro;
  object->name = macro.name;
  object->macro = &macro;
  object->scope = scope_;
  if (captured_scopes_.empty() || captured_scopes_.back() != scope_) {
    MF_TRY_STATUS(budget_.take(kRememberedBytes));
    captured_scopes_.push_back(scope_);
  }
  MF_TRY_STATUS(heap_.admit(*object, sizeof(CallableObject)));
  return Value(Kind::callable, std::move(object));
}

Result<Value> Evaluation::make_namespace(std::vector<std::pair<std::string, Value>> entries) {
  auto object = std::make_shared<NamespaceObject>();
  object->entries = std::move(entries);
  MF_TRY_STATUS(budget_.take(kRememberedBytes + object->entries.size() * 2 * sizeof(Value)));
  namespaces_.push_back(object);
  return Value(Kind::name_space, std::move(object));
}

}  // namespace moeflux::jinja
