// map, select, reject and similar filters, which apply filters and tests to elements.

#include <fmt/format.h>

#include <algorithm>

#include "base/printable.h"
#include "text/template/jinja/binding.h"
#include "text/template/jinja/builtins/filters.h"
#include "text/template/jinja/builtins/methods.h"
#include "text/template/jinja/builtins/predicates.h"
#include "text/template/jinja/evaluation.h"

namespace moeflux::jinja {
namespace {

// map(attribute=...): an attribute of each element.
Result<Value> map_attribute(Evaluation& evaluation, const std::vector<Value>& items,
                            const Arguments& arguments) {
  MF_TRY(const Bound bound, bind("map", {{}, arguments.named}, {"attribute", "default"}, 1));
  std::vector<Value> out;
  for (const Value& item : items) {
    MF_TRY(Value value, by_path(evaluation, item, *bound[0], bound[1].value_or(Value())));
    out.push_back(std::move(value));
  }
  return evaluation.heap().sequence(std::move(out), SequenceKind::generator);
}

Result<Value> map_filter(Evaluation& evaluation, const Value& input, const Arguments& arguments) {
  if (!truth(input)) return evaluation.heap().sequence({}, SequenceKind::generator);
  MF_TRY(const std::vector<Value> items, elements(input, evaluation.heap()));
  MF_TRY_STATUS(evaluation.budget().step(items.size()));
  const bool by_attribute = std::any_of(arguments.named.begin(), arguments.named.end(),
                                        [](const auto& argument) { return argument.first == "attribute"; });
  if (arguments.positional.empty() && by_attribute) return map_attribute(evaluation, items, arguments);
  if (arguments.positional.empty()) return type_error("map() needs a filter or an attribute");
  MF_TRY(const std::string_view name, text("map", arguments.positional.front()));
  const Arguments rest{{arguments.positional.begin() + 1, arguments.positional.end()}, arguments.named};
  std::vector<Value> out;
  for (const Value& item : items) {
    MF_TRY(Value value, apply_filter(evaluation, name, item, rest));
    out.push_back(std::move(value));
  }
  return evaluation.heap().sequence(std::move(out), SequenceKind::generator);
}

template <bool by_attribute, bool keeps>
Result<Value> select_filter(Evaluation& evaluation, const Value& input, const Arguments& arguments) {
  if (!truth(input)) return evaluation.heap().sequence({}, SequenceKind::generator);
  MF_TRY(const std::vector<Value> items, elements(input, evaluation.heap()));
  MF_TRY_STATUS(evaluation.budget().step(items.size()));
  const std::size_t used = by_attribute ? 1 : 0;
  if (arguments.positional.size() < used) return type_error("selectattr() needs the name of an attribute");
  const bool has_test = arguments.positional.size() > used;
  std::string_view test;
  Arguments rest;
  if (has_test) {
    MF_TRY(test, text("select", arguments.positional[used]));
    rest = {
        {arguments.positional.begin() + static_cast<std::ptrdiff_t>(used) + 1, arguments.positional.end()},
        arguments.named};
  }
  std::vector<Value> out;
  for (const Value& item : items) {
    Value value = item;
    if (by_attribute) {
      MF_TRY(value, by_path(evaluation, item, arguments.positional.front()));
    }
    bool passes = truth(value);
    if (has_test) {
      MF_TRY(passes, apply_test(evaluation, test, value, rest));
    }
    if (passes == keeps) out.push_back(item);
  }
  return evaluation.heap().sequence(std::move(out), SequenceKind::generator);
}

// Python's getattr() only; a dot would also find an element.
Result<Value> attr_filter(Evaluation& evaluation, const Value& input, const Arguments& arguments) {
  MF_TRY(const Bound bound, bind("attr", arguments, {"name"}, 1));
  MF_TRY(const std::string_view name, text("attr", *bound[0]));
  if (!input.is_dict() || has_method(input, name)) return evaluation.attribute(input, name);
  return Heap::undefined(fmt::format("'dict object' has no attribute '{}'", printable(name, 60)));
}

}  // namespace

FilterFunction find_selecting_filter(std::string_view name) {
  static constexpr std::pair<std::string_view, FilterFunction> kFilters[] = {
      {"attr", attr_filter},
      {"map", map_filter},
      {"reject", select_filter<false, false>},
      {"rejectattr", select_filter<true, false>},
      {"select", select_filter<false, true>},
      {"selectattr", select_filter<true, true>},
  };
  const auto* found = std::find_if(std::begin(kFilters), std::end(kFilters),
                                   [&](const auto& filter) { return filter.first == name; });
  return found == std::end(kFilters) ? nullptr : found->second;
}

}  // namespace moeflux::jinja
