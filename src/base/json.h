#pragma once
// Strict reading of JSON documents that nobody vouches for.
//
// Stricter than RFC 8259 asks: a key twice in an object is an error, and so are a byte order mark, NaN
// and Infinity, a NUL byte, invalid UTF-8 and a number that no double holds. Integers beyond 64 bits
// become doubles (tokenizer_config.json says "model_max_length": 1000000000000000019884624838656).
// The limits bound memory and time before a byte of the document is believed.
//
// Within the default limits reading takes at most 67 MB above the text: the peak of live allocations over
// thirteen hostile fillings (json_memory_test.cpp), reached by {"aaaa":"","aaab":"",...}; [0,0,...] takes
// 17 MB, ["","",...] 38 MB, [[],[],...] 32 MB. Without the limit on values ["","",...] of 4 MiB took 108 MB
// of resident memory. The slowest of them takes 0.2 s: O(n log n) in the keys of an object.
//
// Nothing throws but std::bad_alloc. Of Json's members use those that do not throw either: is_...(),
// find(), get_ptr<>(), iteration; get<>() and at() throw on a document of another shape.

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string_view>

#include "base/result.h"
#include "base/sizes.h"

namespace moeflux {

// Members keep the order of the document, for writing it back; find() on an object is linear.
using Json = nlohmann::ordered_json;

struct JsonLimits {
  std::uint64_t bytes = 4 * kMiB;
  std::uint32_t depth = 64;           // arrays and objects inside each other
  std::uint32_t values = 512 * 1024;  // of any kind, arrays and objects included
};

// The document in `text`. `what` names it in messages: "config.json:12:5: duplicate key 'hidden_size'",
// with line and column from 1, columns in bytes. Beyond a limit is `unsupported`; else `corrupt_data`.
Result<Json> parse_json(std::string_view text, std::string_view what, JsonLimits limits = {});

}  // namespace moeflux
