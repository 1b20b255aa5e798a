#pragma once
// manifest.json ↔ Manifest.
//
// parse_manifest() believes nothing: after it succeeds, versions are known, the config is one that runs, every
// tensor that it needs is there once with its shape, and every range is aligned, of exactly the size that its
// format means, inside its file and apart from the others. Whether the files are as long as they should be is
// PackedModel's to check. Pure functions: any thread.

#include <optional>
#include <string>
#include <string_view>

#include "base/json.h"
#include "base/result.h"
#include "model/packed_format.h"

namespace moeflux {

// 61 layers of 384 experts make a manifest of 1.3 MB and 130,000 values.
inline constexpr JsonLimits kManifestLimits{.bytes = 16 * kMiB, .depth = 16, .values = 1024 * 1024};

Result<Manifest> parse_manifest(std::string_view json, std::string_view what);
std::string write_manifest(const Manifest& manifest);

// 16 and 32 hexadecimal digits.
std::string hex_of(std::uint64_t checksum);
std::string hex_of(const Digest& digest);
std::optional<std::uint64_t> checksum_from_hex(std::string_view text);
std::optional<Digest> digest_from_hex(std::string_view text);

}  // namespace moeflux
