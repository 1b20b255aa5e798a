// Gated DeltaNet on the CPU: convolution, delta rule, and everything between the projections of a layer.
//
// In decoding with several threads, the work between the projections is one region: a task takes some value
// heads of a row from the convolution to the rounded output.

#include <algorithm>
#include <array>
#include <utility>

#include "base/arithmetic.h"
#include "base/check.h"
#include "ops/cpu_ops.h"

namespace moeflux {
namespace {

// Value heads that a task of mix_delta() takes at most.
constexpr std::uint32_t kMostHeads = 16;
// The kernel for single rows reads one state while it writes another, so parts have several heads.
constexpr std::uint32_t kPartsPerThread = 4;

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
  const ByLength lengths = by_length(segments);
  const auto &many_rows = lengths.many_rows, &one_row = lengths.one_row;
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
  const ByLength lengths = by_length(segments);
  const auto &many_rows = lengths.many_rows, &one_row = lengths.one_row;
  const std::span<DeltaHead> heads = take_host<DeltaHead>(segments.size() * shape.value_heads);
  const std::uint64_t decode_heads = one_row.size() * std::uint64_t{shape.value_heads};
  const auto parts = static_cast<std::uint32_t>(
      std::min<std::uint64_t>(decode_heads, std::uint64_t{kPartsPerThread} * threads_));
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

// The only row of a session, and what mix_delta() takes and gives.
struct CpuOps::MixedRow {
  std::uint32_t row;
  const RecurrentSegment *conv, *delta;
  Rows qkv, gate, a, b;
  const Input& result;
};

Input CpuOps::mix_delta(const DeltaMix& mix, std::span<const RecurrentSegment> conv_states,
                        std::span<const RecurrentSegment> delta_states, Rows qkv, Rows gate, Rows a, Rows b) {
  const DeltaRuleShape& shape = mix.shape;
  const bool decodes =
      std::ranges::all_of(delta_states, [](const auto& segment) { return segment.rows == 1; });
  if (threads_ == 1 || !decodes || shape.value_dim % kInt8Group != 0)
    return Ops::mix_delta(mix, conv_states, delta_states, qkv, gate, a, b);

  const Rows read = take(qkv.count, shape.all_values());
  const Input result = take_prepared(read, Rounding::coarse);
  const Scope scope(*this);
  const auto sessions = static_cast<std::uint32_t>(delta_states.size());
  const std::uint32_t heads_wanted = sessions * shape.value_heads / (kPartsPerThread * threads_);
  const std::uint32_t per_task = std::clamp(heads_wanted, 1u, std::min(kMostHeads, shape.value_heads));
  const std::uint32_t tasks_of_row = divide_up(shape.value_heads, per_task);
  const Rows mixed = take(threads_, per_task * (2 * shape.key_dim + shape.value_dim));
  each_task(std::uint64_t{sessions} * tasks_of_row, [&](std::uint32_t task, unsigned worker) {
    const std::uint32_t session = task / tasks_of_row, first = task % tasks_of_row * per_task;
    const std::uint32_t count = std::min(per_task, shape.value_heads - first);
    const MixedRow row{delta_states[session].first_row,
                       &conv_states[session],
                       &delta_states[session],
                       qkv,
                       gate,
                       a,
                       b,
                       result};
    mix_heads(mix, row, first, count, mixed.row(worker));
  });
  return result;
}

// Value heads [first, first + count). `memory`: room for their queries, keys and values.
void CpuOps::mix_heads(const DeltaMix& mix, const MixedRow& of, std::uint32_t first, std::uint32_t count,
                       float* memory) {
  const DeltaRuleShape& shape = mix.shape;
  const std::uint32_t sharing = shape.value_heads / shape.key_heads;
  const std::uint32_t key_dim = shape.key_dim, value_dim = shape.value_dim, all_keys = shape.all_keys();
  const std::uint32_t first_key = first / sharing, keys = (first + count - 1) / sharing + 1 - first_key;
  float* const queries = memory;
  float* const key_rows = queries + std::size_t{keys} * key_dim;
  float* const values = key_rows + std::size_t{keys} * key_dim;
  // All value heads of a key head convolve its query and key. The first of them writes the state.
  const std::uint32_t foreign = first % sharing != 0 ? 1 : 0;
  for (const auto& [at, rows] : {std::pair(0u, queries), std::pair(all_keys, key_rows)}) {
    const std::uint32_t channel = at + first_key * key_dim;
    if (foreign != 0) convolve_row(mix, of, channel, key_dim, false, rows);
    if (keys != foreign)
      convolve_row(mix, of, channel + foreign * key_dim, (keys - foreign) * key_dim, true,
                   rows + std::size_t{foreign} * key_dim);
  }
  convolve_row(mix, of, 2 * all_keys + first * value_dim, count * value_dim, true, values);
  for (std::uint32_t key = 0; key < keys; ++key) {
    float* const query = queries + std::size_t{key} * key_dim;
    kernels_->rows->l2_norm(query, key_dim, mix.unit_eps, mix.query_scale, query);
    float* const row = key_rows + std::size_t{key} * key_dim;
    kernels_->rows->l2_norm(row, key_dim, mix.unit_eps, 1, row);
  }
  std::array<float, kMostHeads> decay, beta;
  kernels_->delta_net->decay_beta(of.a.row(of.row) + first, of.b.row(of.row) + first, &mix.rate[first],
                                  &mix.dt_bias[first], count, decay.data(), beta.data());
  std::array<DeltaHead, kMostHeads> heads;
  const std::uint64_t state_size = std::uint64_t{key_dim} * value_dim;
  float* const y = of.result.x.row(of.row);
  for (std::uint32_t i = 0; i < count; ++i) {
    const std::uint64_t head = first + i, key = head / sharing - first_key;
    heads[i] = {queries + key * key_dim,
                key_rows + key * key_dim,
                values + std::size_t{i} * value_dim,
                decay[i],
                beta[i],
                of.delta->before + head * state_size,
                of.delta->after + head * state_size,
                y + head * value_dim};
  }
  kernels_->delta_net->delta_step({heads.data(), count, key_dim, value_dim});
  for (std::uint32_t i = 0; i < count; ++i)
    kernels_->rows->gated_rms_norm(heads[i].y, mix.norm.data(),
                                   of.gate.row(of.row) + std::size_t{first + i} * value_dim, value_dim,
                                   mix.norm_eps, heads[i].y);
  prepare_part(of.result, of.row, first * value_dim, count * value_dim);
}

// Some channels of the row.
void CpuOps::convolve_row(const DeltaMix& mix, const MixedRow& of, std::uint32_t first,
                          std::uint32_t channels, bool writes_state, float* y) {
  ConvArgs args;
  args.x = of.qkv.row(of.row) + first;
  args.x_stride = of.qkv.stride;
  args.rows = 1;
  args.channels = channels;
  args.width = mix.conv_width;
  args.weight = mix.conv_weight.data() + std::uint64_t{first} * mix.conv_width;
  args.state_in = of.conv->before + first;
  if (writes_state) args.state_out = of.conv->after + first;
  args.state_stride = of.qkv.cols;
  args.y = y;
  args.y_stride = channels;
  kernels_->delta_net->conv(args);
}

}  // namespace moeflux
