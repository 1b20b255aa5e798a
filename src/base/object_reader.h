#pragma once
// Reads one JSON object strictly, key by key.
//
// Every getter names the key in its error, with what was expected and what was found; there are no silent
// defaults. The reader remembers which keys were looked at, so that unknown ones can be pointed out: an
// unknown key may be harmless, but the reader must not be the one who hides it.
//
// Refers to the Json it was made from, which outlives it. One thread at a time.

#include <cstdint>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"
#include "base/result.h"

namespace moeflux {

class ObjectReader {
 public:
  // `where` is how messages call the object: "config.json" or "config.json: text_config".
  // Requires an object (checked by the caller with as_object()).
  ObjectReader(const Json& object, std::string where);

  static Result<ObjectReader> as_object(const Json& value, std::string where);

  const std::string& where() const { return where_; }

  // True when the key is there and not null.
  bool has(std::string_view key) const;

  // A size: a whole number in [minimum, maximum].
  Result<std::uint32_t> size(std::string_view key, std::uint32_t maximum, std::uint32_t minimum = 1) const;
  // A finite number in [minimum, maximum].
  Result<double> number(std::string_view key, double minimum, double maximum) const;
  Result<bool> boolean(std::string_view key) const;
  Result<std::string> text(std::string_view key) const;
  Result<ObjectReader> object(std::string_view key) const;
  Result<std::vector<std::string>> texts(std::string_view key, std::size_t limit) const;

  // The raw value, or null when absent. Marks the key as known.
  const Json* value(std::string_view key) const;

  // "config.json: 'hidden_size' is missing" and its siblings, for callers with rules of their own.
  Error missing(std::string_view key) const;
  Error wrong(std::string_view key, std::string_view expected) const;

  // For keys of which only one value is supported: absent or null is fine, `supported` is fine, anything
  // else is `unsupported` and named.
  Status only(std::string_view key, const Json& supported) const;

  // Marks keys as known without reading them.
  void ignore(std::span<const std::string_view> keys) const;

  // The keys that nobody asked for.
  std::vector<std::string> unknown_keys() const;

 private:
  const Json* object_;
  std::string where_;
  mutable std::set<std::string, std::less<>> known_;
};

// A value of a file as messages show it: one line, shortened.
std::string shown(const Json& value);

}  // namespace moeflux
