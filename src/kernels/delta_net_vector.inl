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

// Channels [at, at + count) of the state: 16 * Groups, or less in a single group. Channels do not depend on
// each other, so a strip goes through all rows before the next one begins. The decayed state is computed
// twice, which is cheaper than storing it between the two passes.
//
// Tried and dropped: updating for one row and multiplying with the key of the next in the same pass, four operations a
// number instead of five and one load instead of two, but half as many channels at a time: 24 instead of 29 G products
// a second, and 15 where the strip lies instead of in a copy.
//
// Once: a single row, as in decoding. Its state comes from memory, and goes back there: as much of the next state as is
// computed of this one is asked for meanwhile, at `ahead` (null: there is none), and the new state does not pass through
// the caches. Both are many: 2 MB a layer.
template <unsigned Groups, bool Once>
MF_LANES void rule_of_strip(const DeltaRuleArgs& args, std::size_t at, std::size_t count,
                            const float*& ahead) {
  const bool whole = count == Groups * kWidth;
  const std::size_t key_dim = args.key_dim, stride = args.value_dim;
  const float* before = args.state_in + at;
  float* const after = args.state_out + at;
  const auto ask = [&ahead](unsigned lines) {
    if (ahead == nullptr) return;
#pragma GCC unroll 4
    for (unsigned line = 0; line < lines; ++line, ahead += kWidth) ask_for(ahead);
  };

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
    const auto clear_chains = [&chain] {
#pragma GCC unroll 4
      for (unsigned c = 0; c < 4; ++c)
#pragma GCC unroll 4
        for (unsigned g = 0; g < Groups; ++g) chain[c][g] = broadcast(0.0f);
    };
    const auto sum_of_chains = [&chain](unsigned g) {
      return (chain[0][g] + chain[1][g]) + (chain[2][g] + chain[3][g]);
    };

    clear_chains();
    for (std::size_t k = 0; k < key_dim; k += 4) {
#pragma GCC unroll 4
      for (unsigned c = 0; c < 4; ++c) {
        if (k + c >= key_dim) break;
        const Lanes key_k = broadcast(key[k + c]);
        if constexpr (Once) ask((Groups + 1) / 2);
#pragma GCC unroll 4
        for (unsigned g = 0; g < Groups; ++g) chain[c][g] = fma(decayed(k + c, g), key_k, chain[c][g]);
      }
    }
    Lanes delta[Groups];
#pragma GCC unroll 4
    for (unsigned g = 0; g < Groups; ++g) {
      const float* const value = args.values + t * args.value_stride + at + g * kWidth;
      delta[g] = ((whole ? load(value) : load_first(value, count)) - sum_of_chains(g)) * beta;
    }

    clear_chains();
    for (std::size_t k = 0; k < key_dim; k += 4) {
#pragma GCC unroll 4
      for (unsigned c = 0; c < 4; ++c) {
        if (k + c >= key_dim) break;
        const Lanes key_k = broadcast(key[k + c]), query_k = broadcast(query[k + c]);
        if constexpr (Once) ask(Groups / 2);
#pragma GCC unroll 4
        for (unsigned g = 0; g < Groups; ++g) {
          const Lanes state = fma(key_k, delta[g], decayed(k + c, g));
          float* const to = after + (k + c) * stride + g * kWidth;
          if constexpr (Once) {
            stream(to, state);
          } else if (whole) {
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
        store(y, sum_of_chains(g));
      } else {
        store_first(y, sum_of_chains(g), count);
      }
    }
  }
}

void delta_rule(const DeltaRuleArgs& args) noexcept {
  constexpr std::size_t kStrip = kChainSets * kWidth;
  const std::size_t dim = args.value_dim;
  std::size_t at = 0;
  const float* ahead = args.next_state;
  if (args.rows == 1 && dim % kStrip == 0 && reinterpret_cast<std::uintptr_t>(args.state_out) % 64 == 0) {
    for (; at < dim; at += kStrip) rule_of_strip<kChainSets, true>(args, at, kStrip, ahead);
    end_of_streams();
    return;
  }
  for (; at + kStrip <= dim; at += kStrip) rule_of_strip<kChainSets, false>(args, at, kStrip, ahead);
  for (; at + kWidth <= dim; at += kWidth) rule_of_strip<1, false>(args, at, kWidth, ahead);
  if (at < dim) rule_of_strip<1, false>(args, at, dim - at, ahead);
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

constexpr DeltaNetKernels kDeltaNet = {.conv = conv, .delta_rule = delta_rule, .decay_beta = decay_beta};

}  // namespace
}  // namespace moeflux
