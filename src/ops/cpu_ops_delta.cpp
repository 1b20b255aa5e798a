// Gated DeltaNet on the CPU: convolution, delta rule, and everything between the projections of a layer.
//
// In decoding, the work between the projections is one parallel region: a task takes some key heads of a row
// with their value heads from the convolution to the rounded output.

#include <algorithm>
#include <array>

#include "base/arithmetic.h"
#include "base/check.h"
#include "ops/cpu_ops.h"

namespace moeflux {
namespace {

// Value heads that a task of mix_delta() takes at most.
constexpr std::uint32_t kMostHeads = 16;
// The kernel for single rows reads one state while it writes another, so parts have several heads.
constexpr std::uint32_t kPartsPerThread = 4;

ConvArgs conv_of_row(const RecurrentSegment& segment, const Rows& x, const DeltaMix& mix, std::uint32_t first,
                     std::uint32_t channels, float* y) {
  ConvArgs args;
  args.x = x.row(segment.first_row) + first;
  args.x_stride = x.stride;
  args.rows = 1;
  args.channels = channels;
  args.width = mix.conv_width;
  args.weight = mix.conv_weight.data() + std::uint64_t{first} * mix.conv_width;
  args.state_in = segment.before + first;
  args.state_out = segment.after + first;
  args.state_stride = x.cols;
  args.y = y;
  args.y_stride = channels;
  return args;
}

}  // namespace

// The segments in two groups, so that work on recurrent states can be split by its amount.
struct CpuOps::ByLength {
  std::span<const RecurrentSegment*> many_rows, one_row;
};

CpuOps::ByLength CpuOps::by_length(std::span<const RecurrentSegment> segments) {
  const std::span<const RecurrentSegment*> all = take_host<const RecurrentSegment*>(segments.size());
  std::size_t many = 0, one = all.size();
  for (const RecurrentSegment& segment : segments) (segment.rows == 1 ? all[--one] : all[many++]) = &segment;
  return {all.first(many), all.subspan(many)};
}

// A task is some channels of a segment, for its rows in order.
void CpuOps::conv(std::span<const RecurrentSegment> segments, Rows x, std::span<const float> weight,
                  std::uint32_t width, Rows y) {
  MF_REQUIRE(weight.size() == std::uint64_t{x.cols} * width, "one weight per channel and position");
  constexpr std::uint32_t kChannels = 64;  // whole cache lines
  const std::uint32_t units = divide_up(x.cols, kChannels);
  const auto run = [&](const RecurrentSegment& segment, std::uint32_t part, std::uint32_t parts) {
    const IndexRange range = split_range(units, parts, part);
    const auto first = static_cast<std::uint32_t>(range.begin) * kChannels;
    ConvArgs args;
    args.x = x.row(segment.first_row) + first;
    args.x_stride = x.stride;
    args.rows = segment.rows;
    args.channels = std::min(static_cast<std::uint32_t>(range.size()) * kChannels, x.cols - first);
    args.width = width;
    args.weight = weight.data() + std::uint64_t{first} * width;
    args.state_in = segment.before + first;
    args.state_out = segment.after + first;
    args.state_stride = x.cols;
    args.y = y.row(segment.first_row) + first;
    args.y_stride = y.stride;
    kernels_->delta_net->conv(args);
  };
  const Scope scope(*this);
  const auto [many_rows, one_row] = by_length(segments);
  const std::uint32_t parts_of_many = std::min(units, most_parts());
  const std::uint32_t parts_of_one = std::min(
      units, divide_up(threads_, static_cast<std::uint32_t>(std::max<std::size_t>(1, one_row.size()))));
  const std::size_t long_tasks = many_rows.size() * parts_of_many;
  each_task(long_tasks + one_row.size() * parts_of_one, [&](std::uint32_t task, unsigned) {
    if (task < long_tasks) return run(*many_rows[task / parts_of_many], task % parts_of_many, parts_of_many);
    const auto rest = static_cast<std::uint32_t>(task - long_tasks);
    run(*one_row[rest / parts_of_one], rest % parts_of_one, parts_of_one);
  });
}

void CpuOps::decay_beta(Rows a, Rows b, std::span<const float> rate, std::span<const float> dt_bias,
                        Rows decay, Rows beta) {
  MF_REQUIRE(rate.size() == a.cols && dt_bias.size() == a.cols && b.cols == a.cols, "the shapes agree");
  each_row(a.count, [&](std::uint32_t row) {
    kernels_->delta_net->decay_beta(a.row(row), b.row(row), rate.data(), dt_bias.data(), a.cols,
                                    decay.row(row), beta.row(row));
  });
}

// A task is a head of a segment with several rows, or many heads of single-row segments, as in decoding,
// which go to the kernel together.
void CpuOps::delta_rule(std::span<const RecurrentSegment> segments, const DeltaRuleShape& shape,
                        Heads queries, Heads keys, Heads values, Rows decay, Rows beta, Heads y) {
  const Scope scope(*this);
  const std::uint32_t sharing = shape.value_heads / shape.key_heads;
  const std::uint64_t state_size = std::uint64_t{shape.key_dim} * shape.value_dim;
  const auto first_row_of = [&](const RecurrentSegment& segment, std::uint32_t head) {
    const std::uint32_t row = segment.first_row;
    return DeltaHead{queries.head(row, head / sharing),
                     keys.head(row, head / sharing),
                     values.head(row, head),
                     decay.row(row)[head],
                     beta.row(row)[head],
                     segment.before + head * state_size,
                     segment.after + head * state_size,
                     y.head(row, head)};
  };
  const auto run_rows = [&](const RecurrentSegment& segment, std::uint32_t head) {
    DeltaRuleArgs args = rule_of_head(first_row_of(segment, head), shape.key_dim, shape.value_dim);
    args.query_stride = queries.stride;
    args.key_stride = keys.stride;
    args.value_stride = values.stride;
    args.decay = decay.row(segment.first_row) + head;
    args.beta = beta.row(segment.first_row) + head;
    args.decay_stride = decay.stride;
    args.beta_stride = beta.stride;
    args.rows = segment.rows;
    args.y_stride = y.stride;
    kernels_->delta_net->delta_rule(args);
  };
  const auto [many_rows, one_row] = by_length(segments);
  const std::span<DeltaHead> heads = take_host<DeltaHead>(segments.size() * shape.value_heads);
  const std::uint64_t decode_heads = one_row.size() * std::uint64_t{shape.value_heads};
  const auto parts =
      static_cast<std::uint32_t>(std::min<std::uint64_t>(decode_heads, kPartsPerThread * threads_));
  const std::size_t long_tasks = many_rows.size() * shape.value_heads;
  each_task(long_tasks + parts, [&](std::uint32_t task, unsigned) {
    if (task < long_tasks) return run_rows(*many_rows[task / shape.value_heads], task % shape.value_heads);
    const IndexRange range = split_range(decode_heads, parts, static_cast<std::uint32_t>(task - long_tasks));
    for (std::uint64_t i = range.begin; i < range.end; ++i)
      heads[i] =
          first_row_of(*one_row[i / shape.value_heads], static_cast<std::uint32_t>(i % shape.value_heads));
    kernels_->delta_net->delta_step({&heads[range.begin], range.size(), shape.key_dim, shape.value_dim});
  });
}

Input CpuOps::mix_delta(const DeltaMix& mix, std::span<const RecurrentSegment> conv_states,
                        std::span<const RecurrentSegment> delta_states, Rows qkv, Rows gate, Rows a, Rows b) {
  const DeltaRuleShape& shape = mix.shape;
  const std::uint32_t sharing = shape.value_heads / shape.key_heads;
  const bool decodes =
      std::ranges::all_of(delta_states, [](const auto& segment) { return segment.rows == 1; });
  if (!decodes || shape.value_dim % kInt8Group != 0 || sharing > kMostHeads)
    return Ops::mix_delta(mix, conv_states, delta_states, qkv, gate, a, b);

  const Rows read = take(qkv.count, shape.all_values());
  const Input result = take_prepared(read, Rounding::coarse);
  const Scope scope(*this);
  const auto units = static_cast<std::uint32_t>(delta_states.size()) * shape.key_heads;
  const std::uint32_t per_task = std::clamp(units / (kPartsPerThread * threads_), 1u, kMostHeads / sharing);
  const Rows mixed = take(threads_, per_task * (2 * shape.key_dim + sharing * shape.value_dim));
  each_task(divide_up(units, per_task), [&](std::uint32_t task, unsigned worker) {
    const std::uint32_t first = task * per_task;
    mix_key_heads(mix, conv_states, delta_states, {first, std::min(first + per_task, units)}, qkv, gate, a, b,
                  mixed.row(worker), result);
  });
  return result;
}

// `units`: key heads, counted over all segments. `mixed`: room for the convolved channels of these heads.
void CpuOps::mix_key_heads(const DeltaMix& mix, std::span<const RecurrentSegment> conv_states,
                           std::span<const RecurrentSegment> delta_states, IndexRange units, const Rows& qkv,
                           const Rows& gate, const Rows& a, const Rows& b, float* mixed,
                           const Input& result) {
  const DeltaRuleShape& shape = mix.shape;
  const std::uint32_t sharing = shape.value_heads / shape.key_heads;
  const std::uint32_t key_dim = shape.key_dim, value_dim = shape.value_dim, all_keys = shape.all_keys();
  const std::uint64_t state_size = std::uint64_t{key_dim} * value_dim;
  std::array<DeltaHead, kMostHeads> heads;
  std::size_t count = 0;
  for (std::uint64_t unit = units.begin; unit < units.end; ++unit) {
    const RecurrentSegment& conv_state = conv_states[unit / shape.key_heads];
    const RecurrentSegment& delta_state = delta_states[unit / shape.key_heads];
    const std::uint32_t row = delta_state.first_row;
    const auto key_head = static_cast<std::uint32_t>(unit % shape.key_heads);
    const std::uint32_t first_value = key_head * sharing;
    float* const query = mixed;
    float* const key = query + key_dim;
    float* const values = key + key_dim;
    mixed = values + std::size_t{sharing} * value_dim;
    kernels_->delta_net->conv(conv_of_row(conv_state, qkv, mix, key_head * key_dim, key_dim, query));
    kernels_->delta_net->conv(conv_of_row(conv_state, qkv, mix, all_keys + key_head * key_dim, key_dim, key));
    kernels_->delta_net->conv(conv_of_row(conv_state, qkv, mix, 2 * all_keys + first_value * value_dim,
                                          sharing * value_dim, values));
    kernels_->rows->l2_norm(query, key_dim, mix.unit_eps, mix.query_scale, query);
    kernels_->rows->l2_norm(key, key_dim, mix.unit_eps, 1, key);
    std::array<float, kMostHeads> decay, beta;
    kernels_->delta_net->decay_beta(a.row(row) + first_value, b.row(row) + first_value,
                                    &mix.rate[first_value], &mix.dt_bias[first_value], sharing, decay.data(),
                                    beta.data());
    for (std::uint32_t i = 0; i < sharing; ++i) {
      const std::uint64_t head = first_value + i;
      heads[count++] = {query,
                        key,
                        values + std::size_t{i} * value_dim,
                        decay[i],
                        beta[i],
                        delta_state.before + head * state_size,
                        delta_state.after + head * state_size,
                        result.x.row(row) + head * value_dim};
    }
  }
  kernels_->delta_net->delta_step({heads.data(), count, key_dim, value_dim});
  for (std::uint64_t i = 0; i < count; ++i) {
    const std::uint64_t at = units.begin * sharing + i;
    const std::uint32_t row = delta_states[at / shape.value_heads].first_row;
    const auto first = static_cast<std::uint32_t>(at % shape.value_heads) * value_dim;
    float* const y = result.x.row(row) + first;
    kernels_->rows->gated_rms_norm(y, mix.norm.data(), gate.row(row) + first, value_dim, mix.norm_eps, y);
    prepare_part(result, row, first, value_dim);
  }
}

}  // namespace moeflux
