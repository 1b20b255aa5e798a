#pragma once
// Choices of experts for benchmarks: how much a cache is worth depends on them, so they are named and
// repeatable.
//
//   model       the router's own: nothing is replaced
//   uniform     every expert equally likely, no two rows alike: the worst case of every cache
//   zipf:S      the r-th most popular expert of a layer is wanted in proportion to 1 / r^S; layers differ
//   trace:FILE  what was recorded once (measure/routing_trace.h)
//
// Only ids are replaced: the k-th weight of a row stays with its k-th id. What uniform and zipf choose for a
// row depends on the seed, the layer and the number of the row in that layer alone: not on chunks or batches.
// A Routing is used by one step at a time, as the engine does.

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
#include "layers/routing.h"
#include "model/config.h"

namespace moeflux {

// What choices depend on.
struct RoutingShape {
  std::uint32_t layers = 0;  // of the model, those without a router included
  std::uint32_t experts = 0;
  std::uint32_t experts_per_token = 0;
  std::vector<LayerId> routed = {};  // the layers that have a router, ascending
  friend bool operator==(const RoutingShape&, const RoutingShape&) = default;
};

// "60 layers, 58 of them with 256 experts, 8 a token".
std::string to_text(const RoutingShape& shape);

// The shape of a model that visits at most `experts_per_token` experts; 0: as many as it was trained with. A
// model without experts, or whose layers have different numbers of them, is unsupported.
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
struct TraceRoutes {
  std::filesystem::path file;
  friend bool operator==(const TraceRoutes&, const TraceRoutes&) = default;
};
using RoutingChoice = std::variant<ModelRoutes, UniformRoutes, ZipfRoutes, TraceRoutes>;

inline constexpr double kMaxZipfExponent = 10;

// "model", "uniform", "zipf:1.1", "trace:FILE". Anything else is invalid_argument.
Result<RoutingChoice> parse_routing(std::string_view text);

// What `choice` stands for, for a model of `shape`; null for the model's own. Only a trace can fail.
Result<std::unique_ptr<Routing>> make_routing(FileSystem& files, const RoutingChoice& choice,
                                              const RoutingShape& shape, std::uint64_t seed);

// Any set of experts is as likely as any other.
class UniformRouting final : public Routing {
 public:
  UniformRouting(const RoutingShape& shape, std::uint64_t seed);
  void choose(LayerId layer, std::uint32_t experts, std::uint32_t experts_per_token,
              std::span<std::uint32_t> chosen, std::span<float> weights) override;

 private:
  const std::uint64_t seed_;
  const std::uint32_t experts_;
  std::vector<std::uint64_t> next_row_;  // [layers]
};

// Experts are drawn one after the other, each in proportion to its popularity among those that the row does
// not have yet. An exponent of 0 is uniform; popularities are whole numbers of which the largest is 2^40 and
// the least is 1.
class ZipfRouting final : public Routing {
 public:
  // 0 <= exponent <= kMaxZipfExponent
  ZipfRouting(const RoutingShape& shape, double exponent, std::uint64_t seed);
  void choose(LayerId layer, std::uint32_t experts, std::uint32_t experts_per_token,
              std::span<std::uint32_t> chosen, std::span<float> weights) override;

  // The experts of a layer, the most popular first.
  std::span<const std::uint32_t> by_popularity(LayerId layer) const;

 private:
  std::uint32_t take(std::uint64_t bits);
  void change(std::uint32_t rank, bool is_back);

  const std::uint64_t seed_;
  const std::uint32_t experts_;
  std::vector<std::uint64_t> next_row_;    // [layers]
  std::vector<std::uint32_t> by_rank_;     // [layers][experts]
  std::vector<std::uint64_t> popularity_;  // [experts] by rank, the same for all layers
  // A binary tree of sums over ranks: node n has the children 2n and 2n + 1, the leaves come last. A draw
  // walks down and takes its leaf out of the sums; when the row is done they are put back.
  std::vector<std::uint64_t> sums_;
};

}  // namespace moeflux
