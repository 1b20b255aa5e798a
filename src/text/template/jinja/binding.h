#pragma once
// The arguments of a call, sorted into the parameters of a function. Pure functions: any thread.

#include <initializer_list>
#include <optional>
#include <string_view>
#include <vector>

#include "text/jinja/callable.h"

namespace moeflux::jinja {

// One value a parameter, absent where none was given; the first `required` are not. `function` names it in
// messages.
using Bound = std::vector<std::optional<Value>>;
Result<Bound> bind(std::string_view function, const Arguments& arguments,
                   std::initializer_list<std::string_view> parameters, std::size_t required = 0);

// A parameter that is a whole number, a string, or true or false.
Result<std::int64_t> whole(std::string_view function, const Value& value);
Result<std::string_view> text(std::string_view function, const Value& value);
bool truth_or(const std::optional<Value>& value, bool otherwise);

}  // namespace moeflux::jinja
