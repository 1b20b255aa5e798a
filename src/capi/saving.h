#pragma once
// A session to and from a buffer of the caller's. Pure functions.

#include <cstddef>

#include "base/result.h"
#include "engine/engine.h"

namespace moeflux {

// The bytes written; buffer_too_small, and nothing written, if they would be more than `size`.
Result<std::size_t> save_into(const Session& session, void* buffer, std::size_t size);
Status load_from(Session& session, const void* bytes, std::size_t size);

}  // namespace moeflux
