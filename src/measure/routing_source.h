#pragma once
// Sources of expert choices for benchmarks. How much a cache helps depends on the choices, so each source has
// a name and is repeatable.
//
//   model       the router's own choices
//   uniform     every expert equally likely, independently per row: the worst case for any cache
//   zipf:S      the r-th most popular expert of a layer is chosen in proportion to 1 / r^S; layers differ
//   trace:FILE  a recording (measure/routing_recording.h)
//
// Only ids are replaced: the k-th weight of a row goes with its k-th id. The choices of uniform and zipf
// depend only on the seed, the layer and the row's number in that layer, not on how rows are batched. One
// step at a time uses a RoutingOverride, as the engine does.

#include <cstdint>
#include <filesystem>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "base/ids.h"
#include "base/result.h"
#include "io/file_system.h"
#include "layers/routing_override.h"
#include "model/config.h"

namespace moeflux {

// The part of a model that choices depend on.
struct RoutingShape {
  std::uint32_t layers = 0;  // all layers of the model, with or without a router
  std::uint32_t experts = 0;
  std::uint32_t experts_per_token = 0;
  std::vector<LayerId> routed = {};  // the layers with a router, ascending
  friend bool operator==(const RoutingShape&, const RoutingShape&) = default;
};

// "60 layers, 58 of them with 256 experts, 8 per token".
std::string to_text(const RoutingShape& shape);

// The shape of a model that runs at most `experts_per_token` experts per token; 0: the model's own number. A
// model without experts, or with different numbers of them in different layers, is unsupported.
Result<RoutingShape> routing_shape_of(const ModelConfig& config, std::uint32_t experts_per_token = 0);

struct ModelRoutes {
  friend bool operator==(const ModelRoutes&, const ModelRoutes&) = default;
};
struct UniformRoutes {
  friend bool operator==(const UniformRoutes&, const UniformRoutes&) = default;
};
struct ZipfRoutes {
  double exponent;
  friend bool operator==(const ZipfRoutes&, const ZipfRoutes&) = default;
};
struct RecordedRoutes {
  std::filesystem::path file;
  friend bool operator==(const RecordedRoutes&, const RecordedRoutes&) = default;
};
using RoutingChoice = std::variant<ModelRoutes, UniformRoutes, ZipfRoutes, RecordedRoutes>;

inline constexpr double kMaxZipfExponent = 10;

// "model", "uniform", "zipf:1.1", "trace:FILE". Anything else is invalid_argument.
Result<RoutingChoice> parse_routing(std::string_view text);

// Makes the routing that `choice` names, for a model of `shape`; null for the model's own. Only a recording
// can fail.
Result<std::unique_ptr<RoutingOverride>> make_routing(FileSystem& files, const RoutingChoice& choice,
                                                      const RoutingShape& shape, std::uint64_t seed);

// Every set of experts is equally likely.
class UniformRouting final : public RoutingOverride {
 public:
  UniformRouting(const RoutingShape& shape, std::uint64_t seed);
  void choose(LayerId layer, std::uint32_t experts, std::uint32_t experts_per_token,
              std::span<std::uint32_t> chosen, std::span<float> weights) override;

 private:
  const std::uint64_t seed_;
  const std::uint32_t experts_;
  std::vector<std::uint64_t> next_row_;  // [layers]
};

// Draws experts without replacement, each in proportion to its popularity. An exponent of 0 is uniform.
// Popularities are integers from 1 to 2^40.
class ZipfRouting final : public RoutingOverride {
 public:
  // Requires: 0 <= exponent <= kMaxZipfExponent.
  ZipfRouting(const RoutingShape& shape, double exponent, std::uint64_t seed);
  void choose(LayerId layer, std::uint32_t experts, std::uint32_t experts_per_token,
              std::span<std::uint32_t> chosen, std::span<float> weights) override;

  // The experts of a layer, most popular first.
  std::span<const std::uint32_t> by_popularity(LayerId layer) const;

 private:
  std::uint32_t take(std::uint64_t bits);
  void change(std::uint32_t rank, bool is_back);

  const std::uint64_t seed_;
  const std::uint32_t experts_;
  std::vector<std::uint64_t> next_row_;    // [layers]
  std::vector<std::uint32_t> by_rank_;     // [layers][experts]
  std::vector<std::uint64_t> popularity_;  // [experts] by rank, the same for all layers
  // A binary tree of sums over ranks: node n has the children 2n and 2n + 1, leaves are last. A draw walks
  // down and subtracts its leaf from the sums; at the end of the row all leaves are added back.
  std::vector<std::uint64_t> sums_;
};

}  // namespace moeflux
