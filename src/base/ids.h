#pragma once
// Typed indices of layers, experts and tokens.
//
// Ids of different kinds do not mix and have no arithmetic: "layer 3 + expert 7" does not compile
// (tests/must_not_compile). Plain values.

#include <compare>
#include <cstddef>
#include <cstdint>
#include <functional>

namespace moeflux {

template <class Tag>
class Id {
 public:
  constexpr explicit Id(std::uint32_t index) : index_(index) {}
  constexpr std::uint32_t index() const { return index_; }
  friend constexpr auto operator<=>(Id, Id) = default;

 private:
  std::uint32_t index_;
};

using LayerId = Id<struct LayerTag>;
using ExpertId = Id<struct ExpertTag>;
using TokenId = Id<struct TokenTag>;

// One routed expert of one layer: the unit of caching and of reads.
struct ExpertKey {
  LayerId layer;
  ExpertId expert;
  friend constexpr auto operator<=>(const ExpertKey&, const ExpertKey&) = default;
};

}  // namespace moeflux

template <>
struct std::hash<moeflux::ExpertKey> {
  std::size_t operator()(const moeflux::ExpertKey& key) const noexcept {
    return std::hash<std::uint64_t>{}((std::uint64_t{key.layer.index()} << 32) | key.expert.index());
  }
};
