#pragma once
// Reads one JSON object strictly, key by key.
//
// The error of every getter names the key and states what was expected and found. There are no silent
// defaults. The reader remembers which keys were read, so that the caller can report the others: an unknown
// key may be harmless, but must not go unnoticed.
//
// Refers to the Json that it was made from, which must outlive it. One thread at a time.

#include <cstdint>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/json/json.h"
#include "base/result.h"

namespace moeflux {

class ObjectReader {
 public:
  // `where` names the object in messages: "config.json" or "config.json: text_config".
  // Requires: `object` is a JSON object. If it may not be one, use as_object().
  ObjectReader(const Json& object, std::string where);

  static Result<ObjectReader> as_object(const Json& value, std::string where);

  const std::string& where() const { return where_; }

  // Whether the key exists and is not null.
  bool has(std::string_view key) const;

  // A whole number in [minimum, maximum].
  Result<std::uint32_t> size(std::string_view key, std::uint32_t maximum, std::uint32_t minimum = 1) const;
  // A finite number in [minimum, maximum].
  Result<double> number(std::string_view key, double minimum, double maximum) const;
  Result<bool> boolean(std::string_view key) const;
  Result<std::string> text(std::string_view key) const;
  Result<ObjectReader> object(std::string_view key) const;
  Result<std::vector<std::string>> texts(std::string_view key, std::size_t limit) const;

  // The raw value, or null if there is none. Marks the key as known.
  const Json* value(std::string_view key) const;

  // The errors "config.json: 'hidden_size' is missing" and "... must be EXPECTED, found ...", for callers
  // that check values themselves.
  Error missing(std::string_view key) const;
  Error wrong(std::string_view key, std::string_view expected) const;

  // For keys with only one supported value: succeeds if the key is absent or null, or has the value
  // `supported`. Another value is `unsupported` and shown in the message.
  Status only(std::string_view key, const Json& supported) const;

  // Marks keys as known without reading them.
  void ignore(std::span<const std::string_view> keys) const;

  // The keys that were neither read nor ignored.
  std::vector<std::string> unknown_keys() const;

 private:
  const Json* object_;
  std::string where_;
  mutable std::set<std::string, std::less<>> known_;
};

// A JSON value for a message: one line, shortened.
std::string shown(const Json& value);

}  // namespace moeflux
