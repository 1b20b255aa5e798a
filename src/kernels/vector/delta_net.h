#pragma once
// The operations of the Gated DeltaNet; lanes are channels. scalar/delta_net.cpp is the specification.

#include <cstddef>
#include <cstdint>

#include "kernels/kernel_table.h"
#include "kernels/vector/lanes.h"
#include "kernels/vector/lanes_math.h"
#include "quant/delta_state.h"

namespace moeflux::vector {
namespace {
template <class Isa>
struct DeltaNet {
  using Lanes = LanesOf<Isa>;

  // Taps of a convolution per pass; a wider convolution continues from the partial sums in y.
  static constexpr std::size_t kTaps = 8;

  MF_INLINE const float* input_row(const ConvArgs& args, std::size_t row) {
    const std::size_t history = args.width - 1;
    return row < history ? args.state_in + row * args.state_stride : args.x + (row - history) * args.x_stride;
  }

  // Taps [first, last) of channels [at, at + count).
  MF_INLINE void add_taps(const ConvArgs& args, std::size_t first, std::size_t last, std::size_t at,
                          std::size_t count) {
    float weight[kTaps][kWidth] = {};
    for (std::size_t lane = 0; lane < count; ++lane)
      for (std::size_t k = first; k < last; ++k)
        weight[k - first][lane] = args.weight[(at + lane) * args.width + k];

    for (std::size_t t = 0; t < args.rows; ++t) {
      float* const y = args.y + t * args.y_stride + at;
      Lanes sum = first == 0 ? Isa::broadcast(0.0f) : load_up_to<Isa>(y, count);
      for (std::size_t k = first; k < last; ++k)
        sum = fma(load_up_to<Isa>(input_row(args, t + k) + at, count), Isa::load(weight[k - first]), sum);
      store_up_to(y, last == args.width ? lanes_silu<Isa>(sum) : sum, count);
    }
  }

  // The same for a width of four, which all models have: the rows that are still needed stay in registers.
  // `is_nontemporal`: stores the new state non-temporally.
  MF_INLINE void conv_four(const ConvArgs& args, std::size_t at, std::size_t count, bool is_nontemporal) {
    constexpr unsigned kConv = 4;
    Lanes w[kConv], in[kConv];  // in: oldest row first
    if (count == kWidth) {
      load_columns(args.weight + at * kConv, w);
    } else {
      float some[kConv * kWidth] = {};
      __builtin_memcpy(some, args.weight + at * kConv, count * kConv * sizeof(float));
      load_columns(some, w);
    }
#pragma GCC unroll 8
    for (unsigned k = 0; k + 1 < kConv; ++k)
      in[k + 1] = load_up_to<Isa>(args.state_in + k * args.state_stride + at, count);
    for (std::size_t t = 0; t < args.rows; ++t) {
#pragma GCC unroll 8
      for (unsigned k = 0; k + 1 < kConv; ++k) in[k] = in[k + 1];
      in[kConv - 1] = load_up_to<Isa>(args.x + t * args.x_stride + at, count);
      Lanes sum = Isa::broadcast(0.0f);
#pragma GCC unroll 8
      for (unsigned k = 0; k < kConv; ++k) sum = fma(in[k], w[k], sum);
      store_up_to(args.y + t * args.y_stride + at, lanes_silu<Isa>(sum), count);
    }
    if (args.state_out == nullptr) return;
#pragma GCC unroll 8
    for (unsigned k = 0; k + 1 < kConv; ++k) {
      float* const to = args.state_out + k * args.state_stride + at;
      if (is_nontemporal && count == kWidth) {
        store_nontemporal(to, in[k + 1]);
      } else {
        store_up_to(to, in[k + 1], count);
      }
    }
  }

  // Prefetch for a single row, as in decoding: weights and states come from memory.
  MF_INLINE void prefetch_conv(const ConvArgs& args, std::size_t at) {
    constexpr std::size_t kAhead = 512;  // channels
    if (at + kAhead >= args.channels) return;
    for (std::size_t k = 0; k < args.width; ++k)
      Isa::prefetch_l2(args.weight + (at + kAhead) * args.width + k * kWidth);
    for (std::size_t k = 0; k + 1 < args.width; ++k)
      Isa::prefetch_l2(args.state_in + k * args.state_stride + at + kAhead);
  }

  static void conv(const ConvArgs& args) noexcept {
    const bool is_once = args.rows == 1;
    const bool is_nontemporal = is_once && args.width == 4 && args.state_stride % kWidth == 0 &&
                                args.state_out != nullptr &&
                                reinterpret_cast<std::uintptr_t>(args.state_out) % 64 == 0;
    for (std::size_t at = 0; at < args.channels; at += kWidth) {
      const std::size_t count = args.channels - at < kWidth ? args.channels - at : kWidth;
      if (is_once) prefetch_conv(args, at);
      if (args.width == 4) {
        conv_four(args, at, count, is_nontemporal);
        continue;
      }
      for (std::size_t first = 0; first < args.width; first += kTaps)
        add_taps(args, first, args.width - first < kTaps ? args.width : first + kTaps, at, count);
      for (std::size_t row = 0; args.state_out != nullptr && row + 1 < args.width; ++row)
        store_up_to(args.state_out + row * args.state_stride + at,
                    load_up_to<Isa>(input_row(args, args.rows + row) + at, count), count);
    }
    if (is_nontemporal) Isa::store_fence();
  }

  // ---- The delta rule ------------------------------------------------------------------------------------
  //
  // A strip of the state (quant/delta_state.h) is a register wide and is processed for all rows before the
  // next strip.

  static_assert(kDeltaStrip == kWidth);

  template <unsigned Strips>
  MF_INLINE void clear_chains(Lanes (&chain)[4][Strips]) {
#pragma GCC unroll 4
    for (unsigned c = 0; c < 4; ++c)
#pragma GCC unroll 4
      for (unsigned s = 0; s < Strips; ++s) chain[c][s] = Isa::broadcast(0.0f);
  }

  template <unsigned Strips>
  MF_INLINE Lanes sum_of_chains(const Lanes (&chain)[4][Strips], unsigned s) {
    return (chain[0][s] + chain[1][s]) + (chain[2][s] + chain[3][s]);
  }

  MF_INLINE Lanes load_channels(const float* from, std::size_t channels) {
    return channels == kWidth ? Isa::load(from) : Isa::load_first(from, channels);
  }
  MF_INLINE void store_channels(float* to, Lanes a, std::size_t channels) {
    if (channels == kWidth) {
      store(to, a);
    } else {
      store_first(to, a, channels);
    }
  }

  // Row `t` of neighboring strips, the first of which begins with channel `at`. Each has `channels` channels:
  // 16, or fewer for the last strip of all. The state has already been multiplied by this row's decay and is
  // stored multiplied by the next row's, which takes four multiplications per number and row instead of five.
  template <unsigned Strips>
  MF_INLINE void row_of_strips(const DeltaRuleArgs& args, std::size_t t, std::size_t at,
                               std::size_t channels) {
    const std::size_t key_dim = args.key_dim;
    const float* const query = args.queries + t * args.query_stride;
    const float* const key = args.keys + t * args.key_stride;
    const Lanes next_decay =
        Isa::broadcast(t + 1 < args.rows ? args.decay[(t + 1) * args.decay_stride] : 1.0f);
    const Lanes beta = Isa::broadcast(args.beta[t * args.beta_stride]);
    float* const state = args.state_out + at * key_dim;
    const auto place = [=](std::size_t k, unsigned s) { return state + s * key_dim * kWidth + k * channels; };

    Lanes chain[4][Strips];
    clear_chains(chain);
    for (std::size_t k = 0; k < key_dim; k += 4) {
#pragma GCC unroll 4
      for (unsigned c = 0; c < 4; ++c) {
        if (k + c >= key_dim) break;
        const Lanes key_k = Isa::broadcast(key[k + c]);
#pragma GCC unroll 4
        for (unsigned s = 0; s < Strips; ++s)
          chain[c][s] = fma(load_channels(place(k + c, s), channels), key_k, chain[c][s]);
      }
    }
    Lanes delta[Strips];
#pragma GCC unroll 4
    for (unsigned s = 0; s < Strips; ++s) {
      const float* const value = args.values + t * args.value_stride + at + s * kWidth;
      delta[s] = (load_channels(value, channels) - sum_of_chains(chain, s)) * beta;
    }

    clear_chains(chain);
    for (std::size_t k = 0; k < key_dim; k += 4) {
#pragma GCC unroll 4
      for (unsigned c = 0; c < 4; ++c) {
        if (k + c >= key_dim) break;
        const Lanes key_k = Isa::broadcast(key[k + c]), query_k = Isa::broadcast(query[k + c]);
#pragma GCC unroll 4
        for (unsigned s = 0; s < Strips; ++s) {
          const Lanes updated = fma(key_k, delta[s], load_channels(place(k + c, s), channels));
          store_channels(place(k + c, s), updated * next_decay, channels);
          chain[c][s] = fma(updated, query_k, chain[c][s]);
        }
      }
    }
#pragma GCC unroll 4
    for (unsigned s = 0; s < Strips; ++s)
      store_channels(args.y + t * args.y_stride + at + s * kWidth, sum_of_chains(chain, s), channels);
  }

  // G products per second, of the 43 that a Zen 4 could do with four multiplications per number: 39 with two
  // strips, 27 to 38 with four, 31 with one. With a state of [key_dim][value_dim]: 33, because the keys of a
  // strip share a few sets of the cache, and 38 in a copy of the strip. Updating one row and multiplying with
  // the key of the next in one pass: 24.
  template <unsigned Strips>
  MF_INLINE void rule_of_strips(const DeltaRuleArgs& args, std::size_t at, std::size_t channels) {
    const std::size_t begin = at * args.key_dim, end = begin + Strips * channels * args.key_dim;
    const Lanes decay = Isa::broadcast(args.decay[0]);
    for (std::size_t i = begin; i < end; i += channels)
      store_channels(args.state_out + i, load_channels(args.state_in + i, channels) * decay, channels);
    for (std::size_t t = 0; t < args.rows; ++t) row_of_strips<Strips>(args, t, at, channels);
  }

  static void delta_rule(const DeltaRuleArgs& args) noexcept {
    if (args.rows == 0) return;
    const std::size_t dim = args.value_dim;
    std::size_t at = 0;
    for (; at + Isa::kStripsAtOnce * kWidth <= dim; at += Isa::kStripsAtOnce * kWidth)
      rule_of_strips<Isa::kStripsAtOnce>(args, at, kWidth);
    for (; at + kWidth <= dim; at += kWidth) rule_of_strips<1>(args, at, kWidth);
    if (at < dim) rule_of_strips<1>(args, at, dim - at);
  }

  // ---- One row of many heads -----------------------------------------------------------------------------
  //
  // Each head reads and writes 128 KB and computes little, so memory is the limit as long as it is always
  // busy. A strip is updated, a few keys at a time, while the same keys of the next strip are multiplied:
  // reads and writes alternate every 512 bytes. New states are stored non-temporally; old ones are prefetched
  // between the writes and the reads.
  //
  // Microseconds per head of 128 x 128, one thread of a Zen 4 whose memory copies 128 KB in 3.3:
  //   3.1 to 3.2  as here; 3.2 and 3.4 when prefetching two strips ahead and one; 3.7 to 4.1 when prefetching
  //               in pairs among the writes, four keys at a time
  //   3.9 to 4.7  two strips together; 4.7 to 6 four
  //   4.1 to 4.6  with a state of [key_dim][value_dim], updating a head while the next is multiplied
  //   2.3 to 2.7  when the new state replaces the old one, which is not possible because a step may fail
  static constexpr std::size_t kKeysAtOnce = 8;
  static constexpr std::size_t kStripsAhead = 4;

  // A strip of a head.
  struct StripPlace {
    const DeltaHead* head;
    std::size_t at;  // its first channel
  };
  MF_INLINE StripPlace next_strip(StripPlace strip, std::size_t dim) {
    return strip.at + kWidth < dim ? StripPlace{strip.head, strip.at + kWidth}
                                   : StripPlace{strip.head + 1, 0};
  }

  // Adds, for kKeysAtOnce keys of a strip, what the decayed state holds for the key.
  MF_INLINE void add_key_products(const float* state, const float* key, Lanes decay, Lanes (&chain)[4][1]) {
#pragma GCC unroll 8
    for (unsigned k = 0; k < kKeysAtOnce; ++k)
      chain[k % 4][0] = fma(Isa::load(state + k * kWidth) * decay, Isa::broadcast(key[k]), chain[k % 4][0]);
  }

  // Updates the state for kKeysAtOnce keys of a strip, and adds its products with the query.
  MF_INLINE void update(const float* before, float* after, const float* key, const float* query, Lanes decay,
                        Lanes delta, Lanes (&chain)[4][1]) {
#pragma GCC unroll 8
    for (unsigned k = 0; k < kKeysAtOnce; ++k) {
      const Lanes state = fma(Isa::broadcast(key[k]), delta, Isa::load(before + k * kWidth) * decay);
      store_nontemporal(after + k * kWidth, state);
      chain[k % 4][0] = fma(state, Isa::broadcast(query[k]), chain[k % 4][0]);
    }
  }

  static bool is_made_of_blocks(const DeltaStepArgs& args) {
    bool is_aligned = true;
    for (std::size_t i = 0; i < args.head_count; ++i)
      is_aligned = is_aligned && reinterpret_cast<std::uintptr_t>(args.heads[i].state_out) % 64 == 0;
    return args.head_count != 0 && is_aligned && args.key_dim % kKeysAtOnce == 0 &&
           args.value_dim % kWidth == 0;
  }

  static void delta_step(const DeltaStepArgs& args) noexcept {
    if (!is_made_of_blocks(args)) {
      for (std::size_t i = 0; i < args.head_count; ++i)
        delta_rule(rule_of_head(args.heads[i], args.key_dim, args.value_dim));
      return;
    }
    const std::size_t dim = args.value_dim, key_dim = args.key_dim;
    const DeltaHead* const end = args.heads + args.head_count;
    StripPlace strip{args.heads, 0}, ahead = strip;
    for (std::size_t i = 0; i < kStripsAhead; ++i) ahead = next_strip(ahead, dim);

    Lanes with_key[4][1], with_query[4][1];
    clear_chains(with_key);
    for (std::size_t k = 0; k < key_dim; k += kKeysAtOnce)
      add_key_products(strip.head->state_in + k * kWidth, strip.head->key + k,
                       Isa::broadcast(strip.head->decay), with_key);
    while (strip.head != end) {
      const DeltaHead& head = *strip.head;
      const StripPlace following = next_strip(strip, dim);
      ahead = next_strip(ahead, dim);
      const bool is_last = following.head == end;
      const DeltaHead& next = is_last ? head : *following.head;
      const float* const before = head.state_in + strip.at * key_dim;
      float* const after = head.state_out + strip.at * key_dim;
      const float* const next_before = next.state_in + following.at * key_dim;
      // After the last head: an address that is in the cache.
      const float* const prefetched = ahead.head < end ? ahead.head->state_in + ahead.at * key_dim : before;
      const Lanes decay = Isa::broadcast(head.decay), next_decay = Isa::broadcast(next.decay);
      const Lanes delta =
          (Isa::load(head.value + strip.at) - sum_of_chains(with_key, 0)) * Isa::broadcast(head.beta);
      clear_chains(with_key);
      clear_chains(with_query);
      for (std::size_t k = 0; k < key_dim; k += kKeysAtOnce) {
        update(before + k * kWidth, after + k * kWidth, head.key + k, head.query + k, decay, delta,
               with_query);
#pragma GCC unroll 8
        for (unsigned line = 0; line < kKeysAtOnce; ++line)
          Isa::prefetch_l2_in_place(prefetched + (k + line) * kWidth);
        if (!is_last) add_key_products(next_before + k * kWidth, next.key + k, next_decay, with_key);
      }
      store(head.y + strip.at, sum_of_chains(with_query, 0));
      strip = following;
    }
    Isa::store_fence();
  }

  static void decay_beta(const float* a, const float* b, const float* rate, const float* dt_bias,
                         std::uint32_t n, float* decay, float* beta) noexcept {
    for (std::size_t i = 0; i < n; i += kWidth) {
      const std::size_t count = n - i < kWidth ? n - i : kWidth;
      const Lanes step =
          lanes_softplus<Isa>(load_up_to<Isa>(a + i, count) + load_up_to<Isa>(dt_bias + i, count));
      store_up_to(decay + i, lanes_exp<Isa>(load_up_to<Isa>(rate + i, count) * step), count);
      store_up_to(beta + i, lanes_sigmoid<Isa>(load_up_to<Isa>(b + i, count)), count);
    }
  }

  static constexpr DeltaNetKernels kTable = {
      .conv = conv, .delta_rule = delta_rule, .delta_step = delta_step, .decay_beta = decay_beta};
};

}  // namespace
}  // namespace moeflux::vector
