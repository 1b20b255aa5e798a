#include "base/hash.h"

#include <xxhash.h>

#include <cstring>
#include <new>

namespace moeflux {
namespace {

detail::HashState new_state() {
  detail::HashState state(XXH3_createState());
  if (!state) throw std::bad_alloc();
  return state;
}

XXH3_state_t* raw(const detail::HashState& state) { return static_cast<XXH3_state_t*>(state.get()); }

Digest canonical(XXH128_hash_t hash) {
  XXH128_canonical_t bytes;
  XXH128_canonicalFromHash(&bytes, hash);
  Digest digest;
  static_assert(sizeof bytes.digest == sizeof digest.bytes);
  std::memcpy(digest.bytes.data(), bytes.digest, sizeof bytes.digest);
  return digest;
}

}  // namespace

void detail::FreeHashState::operator()(void* state) const {
  XXH3_freeState(static_cast<XXH3_state_t*>(state));
}

ChecksumStream::ChecksumStream() : state_(new_state()) { XXH3_64bits_reset(raw(state_)); }
void ChecksumStream::add(std::span<const std::byte> bytes) {
  XXH3_64bits_update(raw(state_), bytes.data(), bytes.size());
}
std::uint64_t ChecksumStream::value() const { return XXH3_64bits_digest(raw(state_)); }

DigestStream::DigestStream() : state_(new_state()) { XXH3_128bits_reset(raw(state_)); }
void DigestStream::add(std::span<const std::byte> bytes) {
  XXH3_128bits_update(raw(state_), bytes.data(), bytes.size());
}
Digest DigestStream::value() const { return canonical(XXH3_128bits_digest(raw(state_))); }

std::uint64_t checksum_of(std::span<const std::byte> bytes) {
  return XXH3_64bits(bytes.data(), bytes.size());
}
Digest digest_of(std::string_view text) { return canonical(XXH3_128bits(text.data(), text.size())); }

}  // namespace moeflux
