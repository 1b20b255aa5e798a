#pragma once
// manifest.json ↔ Manifest.
//
// parse_manifest() validates everything that the text alone can prove: a known version, a config that can
// run, every tensor of the config exactly once and in its shape, and ranges that are aligned, of the size
// their format implies, inside their file, and disjoint. PackedModel checks the lengths of the files. Pure
// functions: any thread.

#include <optional>
#include <string>
#include <string_view>

#include "base/json/json.h"
#include "base/result.h"
#include "model/packed_format.h"

namespace moeflux {

// A model with 61 layers of 384 experts has a manifest of 1.3 MB and 130,000 values.
inline constexpr JsonLimits kManifestLimits{.bytes = 16 * kMiB, .depth = 16, .values = 1024 * 1024};

// `what` names the manifest in errors. Another format version is `unsupported`; invalid content is
// `corrupt_data`.
Result<Manifest> parse_manifest(std::string_view json, std::string_view what);
std::string write_manifest(const Manifest& manifest);

// 16 and 32 lower-case hexadecimal digits.
std::string hex_of(std::uint64_t checksum);
std::string hex_of(const Digest& digest);
std::optional<std::uint64_t> checksum_from_hex(std::string_view text);
std::optional<Digest> digest_from_hex(std::string_view text);

}  // namespace moeflux
