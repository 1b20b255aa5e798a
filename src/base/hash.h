#pragma once
// XXH3, also over bytes that arrive in pieces: 64 bits as a checksum of stored bytes, 128 bits to identify a
// model.
//
// Both detect accidental corruption by disks and downloads. Neither is cryptographic: collisions can be
// constructed. Each stream: one thread at a time. Functions: any thread.

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string_view>

namespace moeflux {

// A 128-bit digest in canonical (big-endian) order; 32 hexadecimal digits in files.
struct Digest {
  std::array<std::uint8_t, 16> bytes{};
  friend bool operator==(const Digest&, const Digest&) = default;
  friend auto operator<=>(const Digest&, const Digest&) = default;
};

namespace detail {
struct FreeHashState {
  void operator()(void* state) const;
};
using HashState = std::unique_ptr<void, FreeHashState>;
}  // namespace detail

class ChecksumStream {
 public:
  ChecksumStream();
  void add(std::span<const std::byte> bytes);
  std::uint64_t value() const;  // of everything added so far

 private:
  detail::HashState state_;
};

class DigestStream {
 public:
  DigestStream();
  void add(std::span<const std::byte> bytes);
  void add(std::string_view text) { add(std::as_bytes(std::span(text))); }
  Digest value() const;

 private:
  detail::HashState state_;
};

std::uint64_t checksum_of(std::span<const std::byte> bytes);
Digest digest_of(std::string_view text);

}  // namespace moeflux
