#pragma once
// Binds the arguments of a call to the parameters of a function. Pure functions, thread-safe.

#include <initializer_list>
#include <optional>
#include <string_view>
#include <vector>

#include "text/template/jinja/builtins/callable.h"

namespace moeflux::jinja {

// One value per parameter, absent if not given; the first `required` parameters must be given. `function` is
// its name in error messages.
using Bound = std::vector<std::optional<Value>>;
Result<Bound> bind(std::string_view function, const Arguments& arguments,
                   std::initializer_list<std::string_view> parameters, std::size_t required = 0);

// The value of a parameter as an integer, a string or a boolean.
Result<std::int64_t> whole(std::string_view function, const Value& value);
Result<std::string_view> text(std::string_view function, const Value& value);
bool truth_or(const std::optional<Value>& value, bool otherwise);

}  // namespace moeflux::jinja
