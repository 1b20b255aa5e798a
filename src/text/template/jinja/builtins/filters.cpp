#include "text/template/jinja/builtins/filters.h"

#include <fmt/format.h>

#include "base/printable.h"
#include "text/template/jinja/evaluation.h"

namespace moeflux::jinja {
namespace {

FilterFunction find_filter(std::string_view name) {
  for (const auto find : {find_text_filter, find_number_filter, find_sequence_filter, find_selecting_filter})
    if (const FilterFunction filter = find(name)) return filter;
  return nullptr;
}

}  // namespace

bool is_filter(std::string_view name) { return find_filter(name) != nullptr; }

Result<Value> apply_filter(Evaluation& evaluation, std::string_view name, const Value& input,
                           const Arguments& arguments) {
  const FilterFunction filter = find_filter(name);
  if (filter == nullptr) return type_error(fmt::format("there is no filter '{}'", printable(name, 60)));
  MF_TRY_STATUS(evaluation.deeper());
  Result<Value> out = filter(evaluation, input, arguments);
  evaluation.shallower();
  return out;
}

}  // namespace moeflux::jinja
