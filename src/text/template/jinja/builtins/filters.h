#pragma once
// The filters of Jinja, and Hugging Face's tojson. One thread at a time.

#include <string_view>

#include "text/jinja/callable.h"

namespace moeflux::jinja {

class Evaluation;

bool is_filter(std::string_view name);
Result<Value> apply_filter(Evaluation& evaluation, std::string_view name, const Value& input,
                           const Arguments& arguments);

// A filter as the tables of the files that implement them hold it.
using FilterFunction = Result<Value> (*)(Evaluation&, const Value&, const Arguments&);
FilterFunction find_text_filter(std::string_view name);
FilterFunction find_number_filter(std::string_view name);
FilterFunction find_sequence_filter(std::string_view name);
FilterFunction find_selecting_filter(std::string_view name);

// The element behind an attribute path such as "function.name" or 0, as map, sort and the like take it. What
// is undefined on the way becomes `otherwise`, unless that is None.
Result<Value> by_path(Evaluation& evaluation, const Value& item, const Value& path,
                      const Value& otherwise = Value());
// A string in lower case, where `ignore_case` asks for it; anything else as it is.
Result<Value> folded(Evaluation& evaluation, const Value& value, bool ignore_case);
// Sorts in place by the keys, keeping the order of equal ones.
Status sort_by_keys(Evaluation& evaluation, std::vector<std::pair<Value, Value>>& keyed, bool reverse);

}  // namespace moeflux::jinja
