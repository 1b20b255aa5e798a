#include "capi/saving.h"

#include <fmt/format.h>

#include <cstring>
#include <span>

#include "base/check.h"
#include "capi/boundary.h"

namespace moeflux {

Result<std::size_t> save_into(const Session& session, void* buffer, std::size_t size) {
  if (buffer == nullptr) return null_argument("buffer");
  const std::uint64_t needed = session.saved_bytes();
  if (size < needed)
    return Error(ErrorCode::buffer_too_small,
                 fmt::format("the session takes {} bytes, the buffer has {}", needed, size));
  const std::span<std::byte> out(static_cast<std::byte*>(buffer), needed);
  std::size_t written = 0;
  MF_TRY_STATUS(session.save([&](std::span<const std::byte> piece) -> Status {
    MF_REQUIRE(piece.size() <= out.size() - written, "a session takes the bytes that it says it takes");
    std::memcpy(out.data() + written, piece.data(), piece.size());
    written += piece.size();
    return {};
  }));
  return written;
}

Status load_from(Session& session, const void* bytes, std::size_t size) {
  if (bytes == nullptr) return null_argument("bytes");
  return session.load(std::span(static_cast<const std::byte*>(bytes), size));
}

}  // namespace moeflux
