#include "measure/routing_source.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <charconv>
#include <cmath>
#include <limits>
#include <numeric>
#include <utility>

#include "base/check.h"
#include "base/overloaded.h"
#include "base/printable.h"
#include "measure/routing_recording.h"
#include "sampling/philox.h"

namespace moeflux {
namespace {

// Random numbers for one row of one layer.
class RowDraws {
 public:
  RowDraws(std::uint64_t seed, LayerId layer, std::uint64_t row)
      : key_{low(seed), low(seed >> 32)}, counter_{0, low(row), low(row >> 32), layer.index()} {}

  std::uint64_t bits() {
    const PhiloxCounter out = philox4x32_10(counter_, key_);
    ++counter_[0];
    return (std::uint64_t{out[1]} << 32) | out[0];
  }
  std::uint32_t below(std::uint32_t limit) { return low(scaled_to(bits(), limit)); }

 private:
  static std::uint32_t low(std::uint64_t x) { return static_cast<std::uint32_t>(x); }

  PhiloxKey key_;
  PhiloxCounter counter_;
};

constexpr std::uint64_t kNoRow = std::numeric_limits<std::uint64_t>::max();  // its draws shuffle a layer
constexpr double kLargestPopularity = 0x1p40;

// Floyd's algorithm for a random set: one draw per expert and no memory except the set itself, kept sorted.
void draw_set(RowDraws draws, std::uint32_t experts, std::span<std::uint32_t> set) {
  const auto count = static_cast<std::uint32_t>(set.size());
  for (std::uint32_t size = 0; size < count; ++size) {
    const std::uint32_t newest = experts - count + size;  // larger than any member so far
    const std::uint32_t drawn = draws.below(newest + 1);
    const auto so_far = set.first(size);
    const auto place = std::ranges::lower_bound(so_far, drawn);
    if (place != so_far.end() && *place == drawn) {
      set[size] = newest;
    } else {
      std::move_backward(place, so_far.end(), so_far.end() + 1);
      *place = drawn;
    }
  }
}

void require_shape(std::uint32_t experts, std::uint32_t own_experts, std::uint32_t experts_per_token,
                   std::span<std::uint32_t> chosen, std::span<float> weights) {
  MF_REQUIRE(experts == own_experts, "the model has the experts that choices were made for");
  MF_REQUIRE(experts_per_token >= 1 && experts_per_token <= experts, "a row visits some of the experts");
  MF_REQUIRE(chosen.size() % experts_per_token == 0 && weights.size() == chosen.size(), "rows are whole");
}

std::vector<std::uint32_t> shuffled(std::uint32_t experts, std::uint64_t seed, LayerId layer) {
  std::vector<std::uint32_t> order(experts);
  std::iota(order.begin(), order.end(), 0u);
  RowDraws draws(seed, layer, kNoRow);
  for (std::uint32_t left = experts; left > 1; --left) std::swap(order[left - 1], order[draws.below(left)]);
  return order;
}

Error wrong_routing(std::string_view expected, std::string_view found) {
  return {ErrorCode::invalid_argument,
          fmt::format("expected a routing of {}, found '{}'", expected, printable(found))};
}

Result<RoutingChoice> parse_zipf(std::string_view text, std::string_view exponent) {
  ZipfRoutes zipf{};
  const char* const end = exponent.data() + exponent.size();
  const auto [rest, error] = std::from_chars(exponent.data(), end, zipf.exponent);
  if (error != std::errc() || rest != end || !(zipf.exponent >= 0 && zipf.exponent <= kMaxZipfExponent))
    return wrong_routing(fmt::format("zipf:S with a number S from 0 to {}", kMaxZipfExponent), text);
  return RoutingChoice(zipf);
}

}  // namespace

std::string to_text(const RoutingShape& shape) {
  return fmt::format("{} layers, {} of them with {} experts, {} per token", shape.layers, shape.routed.size(),
                     shape.experts, shape.experts_per_token);
}

Result<RoutingShape> routing_shape_of(const ModelConfig& config, std::uint32_t experts_per_token) {
  RoutingShape shape;
  shape.layers = static_cast<std::uint32_t>(config.layers.size());
  for (std::uint32_t layer = 0; layer < shape.layers; ++layer) {
    const auto* moe = std::get_if<MoeConfig>(&config.layers[layer].mlp);
    if (moe == nullptr) continue;
    std::uint32_t per_token = moe->experts_per_token;
    if (experts_per_token != 0) per_token = std::min(per_token, experts_per_token);
    if (shape.routed.empty()) {
      shape.experts = moe->experts;
      shape.experts_per_token = per_token;
    } else if (moe->experts != shape.experts || per_token != shape.experts_per_token) {
      return Error{
          ErrorCode::unsupported,
          fmt::format("routing needs layers that are alike: layer {} has {} experts, {} per token, and "
                      "layer {} has {}, {} per token",
                      shape.routed.front().index(), shape.experts, shape.experts_per_token, layer,
                      moe->experts, per_token)};
    }
    shape.routed.emplace_back(layer);
  }
  if (shape.routed.empty())
    return Error{
        ErrorCode::unsupported,
        fmt::format("there is nothing to route: none of the model's {} layers has experts", shape.layers)};
  return shape;
}

Result<RoutingChoice> parse_routing(std::string_view text) {
  if (text == "model") return RoutingChoice(ModelRoutes{});
  if (text == "uniform") return RoutingChoice(UniformRoutes{});
  const std::size_t colon = text.find(':');
  if (colon != std::string_view::npos) {
    const std::string_view kind = text.substr(0, colon), value = text.substr(colon + 1);
    if (kind == "zipf") return parse_zipf(text, value);
    if (kind == "trace" && !value.empty()) return RoutingChoice(RecordedRoutes{value});
  }
  return wrong_routing("model, uniform, zipf:S or trace:FILE", text);
}

Result<std::unique_ptr<RoutingOverride>> make_routing(FileSystem& files, const RoutingChoice& choice,
                                                      const RoutingShape& shape, std::uint64_t seed) {
  using Made = Result<std::unique_ptr<RoutingOverride>>;
  return std::visit(
      overloaded{
          [](const ModelRoutes&) -> Made { return std::unique_ptr<RoutingOverride>(); },
          [&](const UniformRoutes&) -> Made {
            return std::unique_ptr<RoutingOverride>(std::make_unique<UniformRouting>(shape, seed));
          },
          [&](const ZipfRoutes& zipf) -> Made {
            return std::unique_ptr<RoutingOverride>(
                std::make_unique<ZipfRouting>(shape, zipf.exponent, seed));
          },
          [&](const RecordedRoutes& recording) -> Made {
            MF_TRY(RoutingRecording recorded, read_routing_recording(files, recording.file));
            if (Status fits = require_fit(recorded, shape); !fits)
              return std::move(fits).error().during(fmt::format("'{}'", recording.file.native()));
            return std::unique_ptr<RoutingOverride>(std::make_unique<RecordedRouting>(std::move(recorded)));
          },
      },
      choice);
}

UniformRouting::UniformRouting(const RoutingShape& shape, std::uint64_t seed)
    : seed_(seed), experts_(shape.experts), next_row_(shape.layers) {}

void UniformRouting::choose(LayerId layer, std::uint32_t experts, std::uint32_t experts_per_token,
                            std::span<std::uint32_t> chosen, std::span<float> weights) {
  require_shape(experts, experts_, experts_per_token, chosen, weights);
  MF_REQUIRE(layer.index() < next_row_.size(), "the layer is one of the model's");
  for (std::size_t at = 0; at < chosen.size(); at += experts_per_token)
    draw_set(RowDraws(seed_, layer, next_row_[layer.index()]++), experts,
             chosen.subspan(at, experts_per_token));
}

ZipfRouting::ZipfRouting(const RoutingShape& shape, double exponent, std::uint64_t seed)
    : seed_(seed), experts_(shape.experts), next_row_(shape.layers), popularity_(shape.experts) {
  MF_REQUIRE(exponent >= 0 && exponent <= kMaxZipfExponent, "the exponent is one that parse_routing gives");
  by_rank_.reserve(std::size_t{shape.layers} * experts_);
  for (std::uint32_t layer = 0; layer < shape.layers; ++layer) {
    const std::vector<std::uint32_t> order = shuffled(experts_, seed, LayerId(layer));
    by_rank_.insert(by_rank_.end(), order.begin(), order.end());
  }
  sums_.resize(2 * std::size_t{std::bit_ceil(experts_)});
  for (std::uint32_t rank = 0; rank < experts_; ++rank) {
    const double share = kLargestPopularity * std::pow(rank + 1.0, -exponent);
    popularity_[rank] = static_cast<std::uint64_t>(std::max(1.0, std::round(share)));
    change(rank, true);
  }
}

std::span<const std::uint32_t> ZipfRouting::by_popularity(LayerId layer) const {
  MF_REQUIRE(layer.index() < next_row_.size(), "the layer is one of the model's");
  return std::span(by_rank_).subspan(std::size_t{layer.index()} * experts_, experts_);
}

// Adds a rank to the sums or subtracts it.
void ZipfRouting::change(std::uint32_t rank, bool is_back) {
  for (std::size_t node = sums_.size() / 2 + rank; node > 0; node /= 2)
    sums_[node] += is_back ? popularity_[rank] : -popularity_[rank];
}

// Draws a rank that is in the sums and removes it.
std::uint32_t ZipfRouting::take(std::uint64_t bits) {
  std::uint64_t place = scaled_to(bits, sums_[1]);
  std::size_t node = 1;
  while (node < sums_.size() / 2) {
    node *= 2;
    if (place >= sums_[node]) place -= sums_[node++];
  }
  const auto rank = static_cast<std::uint32_t>(node - sums_.size() / 2);
  change(rank, false);
  return rank;
}

void ZipfRouting::choose(LayerId layer, std::uint32_t experts, std::uint32_t experts_per_token,
                         std::span<std::uint32_t> chosen, std::span<float> weights) {
  require_shape(experts, experts_, experts_per_token, chosen, weights);
  const std::span<const std::uint32_t> expert_of_rank = by_popularity(layer);
  for (std::size_t at = 0; at < chosen.size(); at += experts_per_token) {
    const std::span<std::uint32_t> row = chosen.subspan(at, experts_per_token);
    RowDraws draws(seed_, layer, next_row_[layer.index()]++);
    for (std::uint32_t& rank : row) rank = take(draws.bits());
    for (const std::uint32_t rank : row) change(rank, true);
    std::ranges::transform(row, row.begin(), [&](std::uint32_t rank) { return expert_of_rank[rank]; });
    std::ranges::sort(row);
  }
}

}  // namespace moeflux
