#pragma once
// Views of an expert's matrices in the bytes of its record. Pure function.

#include <cstddef>
#include <span>

#include "experts/expert_source.h"
#include "model/packed_format.h"

namespace moeflux {

// Requires: `record` has record_layout(format).record_bytes bytes. The view points into it.
ExpertView view_of(const ExpertFormat& format, std::span<const std::byte> record);

}  // namespace moeflux
