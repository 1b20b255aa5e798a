#include "base/json/object_reader.h"

#include <fmt/format.h>

#include <cmath>

#include "base/check.h"
#include "base/printable.h"

namespace moeflux {

std::string shown(const Json& value) {
  if (value.is_object()) return "an object";
  if (value.is_array()) return fmt::format("an array of {}", value.size());
  return printable(value.dump(-1, ' ', false, Json::error_handler_t::replace), 60);
}

ObjectReader::ObjectReader(const Json& object, std::string where)
    : object_(&object), where_(std::move(where)) {
  MF_REQUIRE(object.is_object(), "an ObjectReader reads an object");
}

Result<ObjectReader> ObjectReader::as_object(const Json& value, std::string where) {
  if (!value.is_object())
    return Error{ErrorCode::corrupt_data,
                 fmt::format("{}: expected an object, found {}", where, shown(value))};
  return ObjectReader(value, std::move(where));
}

const Json* ObjectReader::value(std::string_view key) const {
  known_.emplace(key);
  const auto found = object_->find(key);
  return found == object_->end() ? nullptr : &*found;
}

bool ObjectReader::has(std::string_view key) const {
  const Json* found = value(key);
  return found != nullptr && !found->is_null();
}

Error ObjectReader::missing(std::string_view key) const {
  return {ErrorCode::corrupt_data, fmt::format("{}: '{}' is missing", where_, printable(key))};
}

Error ObjectReader::wrong(std::string_view key, std::string_view expected) const {
  const Json* found = value(key);
  return {ErrorCode::corrupt_data, fmt::format("{}: '{}' must be {}, found {}", where_, printable(key),
                                               expected, found == nullptr ? "nothing" : shown(*found))};
}

Result<std::uint32_t> ObjectReader::size(std::string_view key, std::uint32_t maximum,
                                         std::uint32_t minimum) const {
  const Json* found = value(key);
  if (found == nullptr) return missing(key);
  // 4096.0 is not accepted for 4096: no real file has it, and a rounding rule would be needed.
  const bool fits = found->is_number_unsigned() && found->get<std::uint64_t>() <= maximum &&
                    found->get<std::uint64_t>() >= minimum;
  if (!fits) return wrong(key, fmt::format("a whole number from {} to {}", minimum, maximum));
  return found->get<std::uint32_t>();
}

Result<double> ObjectReader::number(std::string_view key, double minimum, double maximum) const {
  const Json* found = value(key);
  if (found == nullptr) return missing(key);
  const double number = found->is_number() ? found->get<double>() : std::nan("");
  if (!(number >= minimum && number <= maximum))
    return wrong(key, fmt::format("a number from {:g} to {:g}", minimum, maximum));
  return number;
}

Result<bool> ObjectReader::boolean(std::string_view key) const {
  const Json* found = value(key);
  if (found == nullptr) return missing(key);
  if (!found->is_boolean()) return wrong(key, "true or false");
  return found->get<bool>();
}

Result<std::string> ObjectReader::text(std::string_view key) const {
  const Json* found = value(key);
  if (found == nullptr) return missing(key);
  if (!found->is_string()) return wrong(key, "a string");
  return found->get<std::string>();
}

Result<ObjectReader> ObjectReader::object(std::string_view key) const {
  const Json* found = value(key);
  if (found == nullptr) return missing(key);
  if (!found->is_object()) return wrong(key, "an object");
  return ObjectReader(*found, fmt::format("{}: {}", where_, key));
}

Result<std::vector<std::string>> ObjectReader::texts(std::string_view key, std::size_t limit) const {
  const Json* found = value(key);
  if (found == nullptr) return missing(key);
  if (!found->is_array() || found->size() > limit)
    return wrong(key, fmt::format("an array of at most {} strings", limit));
  std::vector<std::string> texts;
  for (const Json& item : *found) {
    if (!item.is_string()) return wrong(key, "an array of strings");
    texts.push_back(item.get<std::string>());
  }
  return texts;
}

Status ObjectReader::only(std::string_view key, const Json& supported) const {
  const Json* found = value(key);
  if (found == nullptr || found->is_null() || *found == supported) return {};
  return Error{ErrorCode::unsupported, fmt::format("{}: '{}' is {}, and only {} is supported", where_, key,
                                                   shown(*found), supported.dump())};
}

void ObjectReader::ignore(std::span<const std::string_view> keys) const {
  for (const std::string_view key : keys) known_.emplace(key);
}

std::vector<std::string> ObjectReader::unknown_keys() const {
  std::vector<std::string> unknown;
  for (const auto& [key, unused] : object_->items())
    if (!known_.contains(key)) unknown.push_back(printable(key));
  return unknown;
}

}  // namespace moeflux
