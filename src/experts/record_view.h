#pragma once
// An expert's matrices in the bytes of its record. Pure.

#include <cstddef>
#include <span>

#include "experts/expert_source.h"
#include "model/packed_format.h"

namespace moeflux {

// `record`: record_layout(format).record_bytes, and alive as long as the view.
ExpertView view_of(const ExpertFormat& format, std::span<const std::byte> record);

}  // namespace moeflux
