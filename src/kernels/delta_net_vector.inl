// The Gated DeltaNet's operations; lanes are channels. Included by the kernels of each ISA after lanes_*.h
// and lanes_math.inl; delta_net_scalar.cpp says what they compute.

namespace moeflux {
namespace {

constexpr std::size_t kWidth = law::kLanes;
// Taps of a convolution at a time; a wider one comes back to what it left in y.
constexpr std::size_t kTaps = 8;

MF_LANES const float* input_row(const ConvArgs& args, std::size_t row) {
  const std::size_t remembered = args.width - 1;
  return row < remembered ? args.state_in + row * args.state_stride
                          : args.x + (row - remembered) * args.x_stride;
}

// Taps [first, last) of channels [at, at + count).
MF_LANES void add_taps(const ConvArgs& args, std::size_t first, std::size_t last, std::size_t at,
                       std::size_t count) {
  float weight[kTaps][kWidth] = {};
  for (std::size_t lane = 0; lane < count; ++lane)
    for (std::size_t k = first; k < last; ++k)
      weight[k - first][lane] = args.weight[(at + lane) * args.width + k];

  for (std::size_t t = 0; t < args.rows; ++t) {
    float* const y = args.y + t * args.y_stride + at;
    Lanes sum = first == 0 ? broadcast(0.0f) : load_up_to(y, count);
    for (std::size_t k = first; k < last; ++k)
      sum = fma(load_up_to(input_row(args, t + k) + at, count), load(weight[k - first]), sum);
    store_up_to(y, last == args.width ? lanes_silu(sum) : sum, count);
  }
}

// The same for a width of four, as all models have it: the rows that are still needed stay in registers.
MF_LANES void conv_four(const ConvArgs& args, std::size_t at, std::size_t count) {
  constexpr unsigned kConv = 4;
  Lanes w[kConv], in[kConv];  // in: the oldest row first
  if (count == kWidth) {
    load_columns(args.weight + at * kConv, w);
  } else {
    float some[kConv * kWidth] = {};
    __builtin_memcpy(some, args.weight + at * kConv, count * kConv * sizeof(float));
    load_columns(some, w);
  }
#pragma GCC unroll 8
  for (unsigned k = 0; k + 1 < kConv; ++k)
    in[k + 1] = load_up_to(args.state_in + k * args.state_stride + at, count);
  for (std::size_t t = 0; t < args.rows; ++t) {
#pragma GCC unroll 8
    for (unsigned k = 0; k + 1 < kConv; ++k) in[k] = in[k + 1];
    in[kConv - 1] = load_up_to(args.x + t * args.x_stride + at, count);
    Lanes sum = broadcast(0.0f);
#pragma GCC unroll 8
    for (unsigned k = 0; k < kConv; ++k) sum = fma(in[k], w[k], sum);
    store_up_to(args.y + t * args.y_stride + at, lanes_silu(sum), count);
  }
#pragma GCC unroll 8
  for (unsigned k = 0; k + 1 < kConv; ++k)
    store_up_to(args.state_out + k * args.state_stride + at, in[k + 1], count);
}

void conv(const ConvArgs& args) noexcept {
  for (std::size_t at = 0; at < args.channels; at += kWidth) {
    const std::size_t count = args.channels - at < kWidth ? args.channels - at : kWidth;
    if (args.width == 4) {
      conv_four(args, at, count);
      continue;
    }
    for (std::size_t first = 0; first < args.width; first += kTaps)
      add_taps(args, first, args.width - first < kTaps ? args.width : first + kTaps, at, count);
    for (std::size_t row = 0; row + 1 < args.width; ++row)
      store_up_to(args.state_out + row * args.state_stride + at,
                  load_up_to(input_row(args, args.rows + row) + at, count), count);
  }
}

// ---- The delta rule -----------------------------------------------------------------------------------------

template <unsigned Groups>
MF_LANES void clear_chains(Lanes (&chain)[4][Groups]) {
#pragma GCC unroll 4
  for (unsigned c = 0; c < 4; ++c)
#pragma GCC unroll 4
    for (unsigned g = 0; g < Groups; ++g) chain[c][g] = broadcast(0.0f);
}

template <unsigned Groups>
MF_LANES Lanes sum_of_chains(const Lanes (&chain)[4][Groups], unsigned g) {
  return (chain[0][g] + chain[1][g]) + (chain[2][g] + chain[3][g]);
}

// Channels [at, at + count) of the state: 16 * Groups, or less in a single group. Channels do not depend on
// each other, so a strip goes through all rows before the next one begins. The decayed state is computed
// twice, which is cheaper than storing it between the two passes.
//
// Tried and dropped: updating for one row and multiplying with the key of the next in the same pass, four operations a
// number instead of five and one load instead of two, but half as many channels at a time: 24 instead of 29 G products
// a second, and 15 where the strip lies instead of in a copy.
template <unsigned Groups>
MF_LANES void rule_of_strip(const DeltaRuleArgs& args, std::size_t at, std::size_t count) {
  const bool whole = count == Groups * kWidth;
  const std::size_t key_dim = args.key_dim, stride = args.value_dim;
  const float* before = args.state_in + at;
  float* const after = args.state_out + at;

  for (std::size_t t = 0; t < args.rows; ++t, before = after) {
    const float* const query = args.queries + t * args.query_stride;
    const float* const key = args.keys + t * args.key_stride;
    const Lanes decay = broadcast(args.decay[t * args.decay_stride]);
    const Lanes beta = broadcast(args.beta[t * args.beta_stride]);
    const auto decayed = [=](std::size_t k, unsigned g) {
      const float* const state = before + k * stride + g * kWidth;
      return (whole ? load(state) : load_first(state, count)) * decay;
    };

    Lanes chain[4][Groups];
    clear_chains(chain);
    for (std::size_t k = 0; k < key_dim; k += 4) {
#pragma GCC unroll 4
      for (unsigned c = 0; c < 4; ++c) {
        if (k + c >= key_dim) break;
        const Lanes key_k = broadcast(key[k + c]);
#pragma GCC unroll 4
        for (unsigned g = 0; g < Groups; ++g) chain[c][g] = fma(decayed(k + c, g), key_k, chain[c][g]);
      }
    }
    Lanes delta[Groups];
#pragma GCC unroll 4
    for (unsigned g = 0; g < Groups; ++g) {
      const float* const value = args.values + t * args.value_stride + at + g * kWidth;
      delta[g] = ((whole ? load(value) : load_first(value, count)) - sum_of_chains(chain, g)) * beta;
    }

    clear_chains(chain);
    for (std::size_t k = 0; k < key_dim; k += 4) {
#pragma GCC unroll 4
      for (unsigned c = 0; c < 4; ++c) {
        if (k + c >= key_dim) break;
        const Lanes key_k = broadcast(key[k + c]), query_k = broadcast(query[k + c]);
#pragma GCC unroll 4
        for (unsigned g = 0; g < Groups; ++g) {
          const Lanes state = fma(key_k, delta[g], decayed(k + c, g));
          float* const to = after + (k + c) * stride + g * kWidth;
          if (whole) {
            store(to, state);
          } else {
            store_first(to, state, count);
          }
          chain[c][g] = fma(state, query_k, chain[c][g]);
        }
      }
    }
#pragma GCC unroll 4
    for (unsigned g = 0; g < Groups; ++g) {
      float* const y = args.y + t * args.y_stride + at + g * kWidth;
      if (whole) {
        store(y, sum_of_chains(chain, g));
      } else {
        store_first(y, sum_of_chains(chain, g), count);
      }
    }
  }
}

constexpr std::size_t kStrip = kChainSets * kWidth;

void delta_rule(const DeltaRuleArgs& args) noexcept {
  const std::size_t dim = args.value_dim;
  std::size_t at = 0;
  for (; at + kStrip <= dim; at += kStrip) rule_of_strip<kChainSets>(args, at, kStrip);
  for (; at + kWidth <= dim; at += kWidth) rule_of_strip<1>(args, at, kWidth);
  if (at < dim) rule_of_strip<1>(args, at, dim - at);
}

// ---- One row of many heads ----------------------------------------------------------------------------------
//
// 128 KB a head are read and written, and little is computed: memory is the limit, if it always has something to do. So a
// head is updated, a few keys at a time, while the same keys of the next head's state are multiplied: reads and writes
// alternate every 2 KB. New states go past the caches. States are asked for 16 KB ahead, most of it between the writes and the
// reads, the rest in pairs among the writes.
//
// Microseconds a head of 128 x 128, one thread of a Zen 4 whose memory copies 128 KB in 3.3:
//   5.4 to 5.9  head after head, the next one asked for meanwhile, evenly
//   4.3 to 4.6  as here, whether 8, 16, 24 or 48 KB ahead
//   5.3 to 6.2  as here, asked for evenly, or all of it before the writes, or among them; 10 without asking
//   5.5         16, 32 or 64 keys at a time; 4.9 with 4
//   4.9         both heads in one loop, half as many channels
//   3.0 to 3.7  where the new state replaces the old one, which a step that may fail cannot do
constexpr std::size_t kKeysAtOnce = 8;
constexpr std::size_t kBlocksAhead = 4;  // of so many keys
constexpr std::size_t kMostValues = 256;
// Lines of a block's strip, and how many of them are asked for after each pair of keys that is written.
constexpr unsigned kLinesOfStrip = kKeysAtOnce * kChainSets, kLinesAPair = kChainSets / 2;

// The chains of all channels, between one block of keys and the next.
using KeptChains = float[4][kMostValues];

template <unsigned Groups>
MF_LANES void load_chains(const KeptChains& kept, std::size_t at, Lanes (&chain)[4][Groups]) {
#pragma GCC unroll 4
  for (unsigned c = 0; c < 4; ++c)
#pragma GCC unroll 4
    for (unsigned g = 0; g < Groups; ++g) chain[c][g] = load(kept[c] + at + g * kWidth);
}
template <unsigned Groups>
MF_LANES void store_chains(KeptChains& kept, std::size_t at, const Lanes (&chain)[4][Groups]) {
#pragma GCC unroll 4
  for (unsigned c = 0; c < 4; ++c)
#pragma GCC unroll 4
    for (unsigned g = 0; g < Groups; ++g) store(kept[c] + at + g * kWidth, chain[c][g]);
}
MF_LANES Lanes sum_of_kept(const KeptChains& kept, std::size_t at) {
  return (load(kept[0] + at) + load(kept[1] + at)) + (load(kept[2] + at) + load(kept[3] + at));
}
MF_LANES void clear_kept(KeptChains& kept, std::size_t dim) {
  for (auto& chain : kept)
    for (std::size_t at = 0; at < dim; at += kWidth) store(chain + at, broadcast(0.0f));
}

MF_LANES void ask_for_lines(const float*& ahead, unsigned count) {
#pragma GCC unroll 32
  for (unsigned line = 0; line < count; ++line, ahead += kWidth) ask_for_here(ahead);
}

// Some keys, and the channels of a strip, of a state of `dim` channels: what it remembers of the key.
MF_LANES void remember(const DeltaHead& head, std::size_t dim, std::size_t first_key, std::size_t at,
                       KeptChains& remembered, const float*& ahead) {
  const Lanes decay = broadcast(head.decay);
  const float* const keys = head.key + first_key;
  const float* const state = head.state_in + first_key * dim + at;
  ask_for_lines(ahead, kLinesOfStrip - kKeysAtOnce / 2 * kLinesAPair);
  Lanes chain[4][kChainSets];
  load_chains(remembered, at, chain);
#pragma GCC unroll 2
  for (std::size_t k = 0; k < kKeysAtOnce; k += 4) {
#pragma GCC unroll 4
    for (unsigned c = 0; c < 4; ++c) {
      const Lanes key = broadcast(keys[k + c]);
#pragma GCC unroll 4
      for (unsigned g = 0; g < kChainSets; ++g)
        chain[c][g] = fma(load(state + (k + c) * dim + g * kWidth) * decay, key, chain[c][g]);
    }
  }
  store_chains(remembered, at, chain);
}

// The same keys and channels: the new state, and what it answers to the query. delta: [dim].
MF_LANES void update(const DeltaHead& head, std::size_t dim, std::size_t first_key, std::size_t at,
                     const float* delta, KeptChains& answered, const float*& ahead) {
  const Lanes decay = broadcast(head.decay);
  const float *const keys = head.key + first_key, *const queries = head.query + first_key;
  const float* const before = head.state_in + first_key * dim + at;
  float* const after = head.state_out + first_key * dim + at;
  Lanes chain[4][kChainSets], correction[kChainSets];
  load_chains(answered, at, chain);
#pragma GCC unroll 4
  for (unsigned g = 0; g < kChainSets; ++g) correction[g] = load(delta + at + g * kWidth);
#pragma GCC unroll 2
  for (std::size_t k = 0; k < kKeysAtOnce; k += 4) {
#pragma GCC unroll 4
    for (unsigned c = 0; c < 4; ++c) {
      const Lanes key = broadcast(keys[k + c]), query = broadcast(queries[k + c]);
#pragma GCC unroll 4
      for (unsigned g = 0; g < kChainSets; ++g) {
        const std::size_t place = (k + c) * dim + g * kWidth;
        const Lanes state = fma(key, correction[g], load(before + place) * decay);
        stream(after + place, state);
        if (c % 2 == 1 && g + 1 == kChainSets) ask_for_lines(ahead, kLinesAPair);
        chain[c][g] = fma(state, query, chain[c][g]);
      }
    }
  }
  store_chains(answered, at, chain);
}

bool is_made_of_blocks(const DeltaStepArgs& args) {
  bool is_aligned = true;
  for (std::size_t i = 0; i < args.head_count; ++i)
    is_aligned = is_aligned && reinterpret_cast<std::uintptr_t>(args.heads[i].state_out) % 64 == 0;
  return args.head_count != 0 && is_aligned && args.key_dim % kKeysAtOnce == 0 &&
         args.value_dim % kStrip == 0 && args.value_dim <= kMostValues;
}

void delta_step(const DeltaStepArgs& args) noexcept {
  if (!is_made_of_blocks(args)) {
    for (std::size_t i = 0; i < args.head_count; ++i)
      delta_rule(rule_of_head(args.heads[i], args.key_dim, args.value_dim));
    return;
  }
  const std::size_t dim = args.value_dim, blocks = args.key_dim / kKeysAtOnce;
  // What is asked for while block `block` of head `head` is read. Behind the last head: what is in the cache.
  const auto block_ahead = [&args, dim, blocks](std::size_t head, std::size_t block) {
    head += (block + kBlocksAhead) / blocks;
    block = (block + kBlocksAhead) % blocks;
    if (head >= args.head_count) head = args.head_count - 1;
    return args.heads[head].state_in + block * kKeysAtOnce * dim;
  };

  alignas(64) KeptChains remembered, answered;
  alignas(64) float delta[kMostValues];
  clear_kept(remembered, dim);
  for (std::size_t block = 0; block < blocks; ++block) {
    const float* ahead = block_ahead(0, block);
    for (std::size_t at = 0; at < dim; at += kStrip)
      remember(args.heads[0], dim, block * kKeysAtOnce, at, remembered, ahead);
  }
  for (std::size_t i = 0; i < args.head_count; ++i) {
    const DeltaHead& head = args.heads[i];
    const DeltaHead* const next = i + 1 < args.head_count ? &head + 1 : nullptr;
    for (std::size_t at = 0; at < dim; at += kWidth)
      store(delta + at, (load(head.value + at) - sum_of_kept(remembered, at)) * broadcast(head.beta));
    clear_kept(remembered, dim);
    clear_kept(answered, dim);
    for (std::size_t block = 0; block < blocks; ++block) {
      const std::size_t first_key = block * kKeysAtOnce;
      const float* ahead = block_ahead(i + 1, block);
      for (std::size_t at = 0; at < dim; at += kStrip) {
        update(head, dim, first_key, at, delta, answered, ahead);
        if (next != nullptr) remember(*next, dim, first_key, at, remembered, ahead);
      }
    }
    for (std::size_t at = 0; at < dim; at += kWidth) store(head.y + at, sum_of_kept(answered, at));
  }
  end_of_streams();
}

void decay_beta(const float* a, const float* b, const float* rate, const float* dt_bias, std::uint32_t n,
                float* decay, float* beta) noexcept {
  for (std::size_t i = 0; i < n; i += kWidth) {
    const std::size_t count = n - i < kWidth ? n - i : kWidth;
    const Lanes step = lanes_softplus(load_up_to(a + i, count) + load_up_to(dt_bias + i, count));
    store_up_to(decay + i, lanes_exp(load_up_to(rate + i, count) * step), count);
    store_up_to(beta + i, lanes_sigmoid(load_up_to(b + i, count)), count);
  }
}

constexpr DeltaNetKernels kDeltaNet = {
    .conv = conv, .delta_rule = delta_rule, .delta_step = delta_step, .decay_beta = decay_beta};

}  // namespace
}  // namespace moeflux
