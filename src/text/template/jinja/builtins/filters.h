#pragma once
// The filters of Jinja, and Hugging Face's tojson. One thread at a time.

#include <string_view>

#include "text/template/jinja/builtins/callable.h"

namespace moeflux::jinja {

class Evaluation;

bool is_filter(std::string_view name);
Result<Value> apply_filter(Evaluation& evaluation, std::string_view name, const Value& input,
                           const Arguments& arguments);

// An entry in the filter tables of the implementation files.
using FilterFunction = Result<Value> (*)(Evaluation&, const Value&, const Arguments&);
FilterFunction find_text_filter(std::string_view name);
FilterFunction find_number_filter(std::string_view name);
FilterFunction find_sequence_filter(std::string_view name);
FilterFunction find_selecting_filter(std::string_view name);

// The element at an attribute path such as "function.name" or 0, for map, sort and similar filters. An
// undefined element on the path becomes `otherwise`, unless that is None.
Result<Value> by_path(Evaluation& evaluation, const Value& item, const Value& path,
                      const Value& otherwise = Value());
// A string in lower case if `ignore_case`; any other value unchanged.
Result<Value> folded(Evaluation& evaluation, const Value& value, bool ignore_case);
// Sorts in place by key; stable.
Status sort_by_keys(Evaluation& evaluation, std::vector<std::pair<Value, Value>>& keyed, bool reverse);

}  // namespace moeflux::jinja
