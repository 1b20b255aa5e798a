#include "text/template/jinja/binding.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/printable.h"

namespace moeflux::jinja {

Result<Bound> bind(std::string_view function, const Arguments& arguments,
                   std::initializer_list<std::string_view> parameters, std::size_t required) {
  Bound out(parameters.size());
  if (arguments.positional.size() > parameters.size()) {
    return type_error(fmt::format("{}() takes at most {} arguments, {} are given", function,
                                  parameters.size(), arguments.positional.size()));
  }
  for (std::size_t i = 0; i < arguments.positional.size(); ++i) out[i] = arguments.positional[i];
  for (const auto& [name, value] : arguments.named) {
    const auto* found = std::find(parameters.begin(), parameters.end(), name);
    if (found == parameters.end())
      return type_error(fmt::format("{}() has no parameter '{}'", function, printable(name, 60)));
    auto& place = out[static_cast<std::size_t>(found - parameters.begin())];
    if (place) return type_error(fmt::format("{}() is given '{}' twice", function, printable(name, 60)));
    place = value;
  }
  for (std::size_t i = 0; i < required; ++i)
    if (!out[i])
      return type_error(fmt::format("{}() lacks its argument '{}'", function, parameters.begin()[i]));
  return out;
}

Result<std::int64_t> whole(std::string_view function, const Value& value) {
  if (value.is_whole()) return value.as_integer();
  if (value.is_undefined()) return undefined_error(value);
  return type_error(fmt::format("{}() expects a whole number, not a '{}'", function, type_name(value)));
}

Result<std::string_view> text(std::string_view function, const Value& value) {
  if (value.is_string()) return value.bytes();
  if (value.is_undefined()) return undefined_error(value);
  return type_error(fmt::format("{}() expects a string, not a '{}'", function, type_name(value)));
}

bool truth_or(const std::optional<Value>& value, bool otherwise) { return value ? truth(*value) : otherwise; }

}  // namespace moeflux::jinja
