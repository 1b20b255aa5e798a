#pragma once
// The tests of Jinja, as in `x is defined`. One thread at a time.

#include <string_view>

#include "text/template/jinja/builtins/callable.h"

namespace moeflux::jinja {

class Evaluation;

bool is_test(std::string_view name);
Result<bool> apply_test(Evaluation& evaluation, std::string_view name, const Value& input,
                        const Arguments& arguments);

}  // namespace moeflux::jinja
