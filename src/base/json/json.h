#pragma once
// Strict parsing of untrusted JSON documents.
//
// Stricter than RFC 8259: it also rejects a duplicate key in an object, a byte order mark, NaN and Infinity,
// a NUL byte, invalid UTF-8, and a number outside the range of double. Integers beyond 64 bits become doubles
// (tokenizer_config.json has "model_max_length": 1000000000000000019884624838656). The limits bound memory
// and time for any input.
//
// Within the default limits, parsing takes at most 67 MB in addition to the text: the highest peak of live
// allocations of thirteen hostile documents (json_memory_test.cpp), reached by {"aaaa":"","aaab":"",...}.
// [0,0,...] takes 17 MB, ["","",...] 38 MB and [[],[],...] 32 MB. Without the limit on values, 4 MiB of
// ["","",...] took 108 MB of resident memory. The slowest document takes 0.2 s; the time is O(n log n) in the
// keys of an object.
//
// Throws nothing but std::bad_alloc. Use only those members of Json that do not throw: is_...(), find(),
// get_ptr<>() and iteration; get<>() and at() throw if the type is not the expected one. Pure functions: any
// thread.

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string_view>

#include "base/result.h"
#include "base/sizes.h"

namespace moeflux {

// Members keep the order of the document, so that it can be written back. find() on an object is linear.
using Json = nlohmann::ordered_json;

struct JsonLimits {
  std::uint64_t bytes = 4 * kMiB;
  std::uint32_t depth = 64;           // nested arrays and objects
  std::uint32_t values = 512 * 1024;  // of all kinds, including arrays and objects
};

// Parses `text`. `what` names the document in messages: "config.json:12:5: duplicate key 'hidden_size'", with
// line and column counted from 1 and columns in bytes. A document over a limit is `unsupported`; all other
// errors are `corrupt_data`.
Result<Json> parse_json(std::string_view text, std::string_view what, JsonLimits limits = {});

}  // namespace moeflux
