#pragma once
// Saves a session to a buffer of the caller and loads it from one. Pure functions.

#include <cstddef>

#include "base/result.h"
#include "engine/session.h"

namespace moeflux {

// Returns the number of bytes written, or buffer_too_small if they exceed `size`; then nothing is written.
Result<std::size_t> save_into(const Session& session, void* buffer, std::size_t size);
Status load_from(Session& session, const void* bytes, std::size_t size);

}  // namespace moeflux
