#include "text/template/jinja/scoping.h"

#include <map>
#include <set>
#include <string_view>
#include <utility>

#include "base/overloaded.h"

namespace moeflux::jinja {
namespace {

// Each condition copies the names of its block; 25,000 of each in one source would take minutes.
constexpr std::uint64_t kMostCopies = 3'000'000;

enum class Load { from_outside, undefined, parameter };

// The names of one block that were visited so far.
struct Frame {
  const Frame* parent = nullptr;
  std::uint64_t* copied = nullptr;  // names copied by conditions, over all frames
  std::map<std::string_view, Load> names;
  std::set<std::string_view> stores;

  static Frame inside(const Frame& around) {
    Frame out;
    out.parent = &around;
    out.copied = around.copied;
    return out;
  }

  bool knows(std::string_view name) const {
    return names.contains(name) || (parent != nullptr && parent->knows(name));
  }
  void load(std::string_view name) {
    if (!knows(name)) names.emplace(name, Load::from_outside);
  }
  void store(std::string_view name) {
    stores.insert(name);
    if (names.contains(name)) return;
    const bool is_outside = parent != nullptr && parent->knows(name);
    names.emplace(name, is_outside ? Load::from_outside : Load::undefined);
  }
  void declare(std::string_view name) {
    stores.insert(name);
    names.insert_or_assign(name, Load::parameter);
  }

  std::vector<std::string> hidden() const {
    std::vector<std::string> out;
    for (const auto& [name, how] : names)
      if (how == Load::undefined) out.emplace_back(name);
    return out;
  }
};

void load_names(const Expression& expression, Frame& frame);

void load_names(const ExpressionPtr& expression, Frame& frame) {
  if (expression != nullptr) load_names(*expression, frame);
}

void load_names(const CallArguments& arguments, Frame& frame) {
  for (const ExpressionPtr& argument : arguments.positional) load_names(argument, frame);
  for (const auto& argument : arguments.named) load_names(argument.second, frame);
  load_names(arguments.more_positional, frame);
  load_names(arguments.more_named, frame);
}

void load_names(const Expression& expression, Frame& frame) {
  const auto all = [&](const auto&... parts) { (load_names(parts, frame), ...); };
  const auto each = [&](const auto& list) {
    for (const ExpressionPtr& part : list) load_names(part, frame);
  };
  const auto chain = [&](const auto& node) {
    load_names(node.first, frame);
    for (const auto& [op, operand] : node.rest) load_names(operand, frame);
  };
  std::visit(overloaded{
                 [](const Constant&) {},
                 [&](const Name& node) { frame.load(node.name); },
                 [&](const Attribute& node) { all(node.object); },
                 [&](const Item& node) { all(node.object, node.key); },
                 [&](const Slice& node) { all(node.object, node.begin, node.end, node.stride); },
                 [&](const Call& node) { all(node.function, node.arguments); },
                 [&](const Filter& node) { all(node.input, node.arguments); },
                 [&](const IsTest& node) { all(node.input, node.arguments); },
                 [&](const Unary& node) { all(node.operand); },
                 [&](const Arithmetic& node) { chain(node); },
                 [&](const Comparison& node) { chain(node); },
                 [&](const Logic& node) { each(node.operands); },
                 [&](const Concatenation& node) { each(node.operands); },
                 [&](const Conditional& node) { all(node.test, node.then, node.otherwise); },
                 [&](const SequenceLiteral& node) { each(node.items); },
                 [&](const DictLiteral& node) {
                   for (const auto& [key, value] : node.entries) all(key, value);
                 },
             },
             expression.node);
}

// Calls `use` for every name of a target.
template <class Use>
void each_name(const Target& target, Use use) {
  if (target.parts.empty()) return use(target);
  for (const Target& part : target.parts) each_name(part, use);
}

void store_names(const Target& target, Frame& frame) {
  each_name(target, [&](const Target& one) {
    if (one.attribute.empty())
      frame.store(one.name);
    else
      frame.load(one.name);
  });
}

void declare_names(const Target& target, Frame& frame) {
  each_name(target, [&](const Target& one) { frame.declare(one.name); });
}

void see(const Body& body, Frame& frame);

// After a condition: a name that only some branches set may still come from outside.
void merge(const std::vector<Frame>& branches, Frame& frame) {
  std::map<std::string_view, std::size_t> counts;
  for (const Frame& branch : branches)
    for (const std::string_view name : branch.stores)
      if (!frame.stores.contains(name)) ++counts[name];
  for (const Frame& branch : branches) {
    for (const auto& [name, how] : branch.names) frame.names.insert_or_assign(name, how);
    frame.stores.insert(branch.stores.begin(), branch.stores.end());
  }
  for (const auto& [name, count] : counts)
    if (count < branches.size()) frame.names.insert_or_assign(name, Load::from_outside);
}

// Jinja counts three branches: the first, all of the `elif`s together, and `else`.
void see_if(const If& node, Frame& frame) {
  load_names(node.branches.front().first, frame);
  *frame.copied += 3 * node.branches.size() * (frame.names.size() + 1);
  if (*frame.copied > kMostCopies) return;
  std::vector<Frame> branches(3, frame);
  see(node.branches.front().second, branches[0]);
  for (std::size_t i = 1; i < node.branches.size(); ++i) {
    load_names(node.branches[i].first, branches[1]);
    std::vector<Frame> inner(3, branches[1]);
    see(node.branches[i].second, inner[0]);
    merge(inner, branches[1]);
  }
  see(node.otherwise, branches[2]);
  merge(branches, frame);
}

// The effect of a block's statements on the names of the block, without the blocks inside them.
void see(const Body& body, Frame& frame) {
  for (const Statement& statement : body) {
    std::visit(overloaded{
                   [](const Data&) {},
                   [](const Break&) {},
                   [](const Continue&) {},
                   [](const Generation&) {},
                   [&](const Print& node) { load_names(node.value, frame); },
                   [&](const If& node) { see_if(node, frame); },
                   [&](const For& node) { load_names(node.iterable, frame); },
                   [&](const Set& node) {
                     load_names(node.value, frame);
                     store_names(node.target, frame);
                   },
                   [&](const SetBlock& node) { store_names(node.target, frame); },
                   [&](const Macro& node) { frame.store(node.name); },
                   [&](const CallBlock& node) { load_names(node.call, frame); },
                   [&](const FilterBlock& node) { load_names(node.filter, frame); },
                   [&](const With& node) {
                     for (const auto& binding : node.bindings) load_names(binding.second, frame);
                   },
               },
               statement.node);
  }
}

void go_inside(Body& body, const Frame& frame);

// Visits a block with its own names: its body in a new frame, then the blocks inside it.
void enter(Body& body, Frame frame, std::vector<std::string>& hidden) {
  see(body, frame);
  hidden = frame.hidden();
  go_inside(body, frame);
}

void enter_macro(Macro& macro, const Frame& around) {
  Frame frame = Frame::inside(around);
  for (const std::string& name : macro.signature.names) frame.declare(name);
  for (const ExpressionPtr& value : macro.signature.defaults) load_names(value, frame);
  for (const char* name : {"caller", "varargs", "kwargs"}) frame.declare(name);
  enter(macro.body, std::move(frame), macro.hidden);
}

void enter_for(For& node, const Frame& around) {
  Frame frame = Frame::inside(around);
  declare_names(node.target, frame);
  frame.declare("loop");
  enter(node.body, std::move(frame), node.hidden);
  enter(node.otherwise, Frame::inside(around), node.hidden_otherwise);
}

void enter_with(With& node, const Frame& around) {
  Frame frame = Frame::inside(around);
  for (const auto& binding : node.bindings) declare_names(binding.first, frame);
  enter(node.body, std::move(frame), node.hidden);
}

void go_inside(Body& body, const Frame& frame) {
  for (Statement& statement : body) {
    std::visit(overloaded{
                   [](auto&) {},
                   [&](If& node) {
                     for (auto& branch : node.branches) go_inside(branch.second, frame);
                     go_inside(node.otherwise, frame);
                   },
                   [&](For& node) { enter_for(node, frame); },
                   [&](SetBlock& node) { enter(node.body, Frame::inside(frame), node.hidden); },
                   [&](Macro& node) { enter_macro(node, frame); },
                   [&](CallBlock& node) { enter_macro(node.caller, frame); },
                   [&](FilterBlock& node) { enter(node.body, Frame::inside(frame), node.hidden); },
                   [&](With& node) { enter_with(node, frame); },
                   [&](Generation& node) { enter(node.body, Frame::inside(frame), node.hidden); },
               },
               statement.node);
  }
}

}  // namespace

Status find_hidden_names(Ast& ast) {
  std::uint64_t copied = 0;
  Frame frame;
  frame.copied = &copied;
  enter(ast.body, std::move(frame), ast.hidden);
  if (copied > kMostCopies)
    return Error(ErrorCode::unsupported, ast.name + ": too many conditions over too many names");
  return {};
}

}  // namespace moeflux::jinja
