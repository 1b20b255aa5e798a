// The exponentials of a block's scores. Included by the families of attention after lanes_*.h and lanes_math.inl.

namespace moeflux {
namespace {

constexpr std::size_t kWidth = law::kLanes;

// p = exp(p - max), for one query.
MF_LANES void soften(float* p, std::uint32_t visible, float* max_out, float* sum_out) {
  // The last group is filled up with what becomes zero.
  for (std::uint32_t j = visible; j % kWidth != 0; ++j) p[j] = -__builtin_inff();

  Lanes largest = broadcast(-__builtin_inff());
  for (std::size_t j = 0; j < visible; j += kWidth) largest = lanes_larger(load(p + j), largest);
  float lanes[kWidth];
  store(lanes, largest);
  float max = lanes[0];
  for (std::size_t lane = 1; lane < kWidth; ++lane) max = lanes[lane] > max ? lanes[lane] : max;
  max = max + 0.0f;

  const Lanes shift = broadcast(max);
  Lanes sum = broadcast(0.0f);
  for (std::size_t j = 0; j < visible; j += kWidth) {
    const Lanes group = lanes_exp(load(p + j) - shift);
    store(p + j, group);
    sum = sum + group;
  }
  *max_out = max;
  *sum_out = fold_add(sum);
}

}  // namespace
}  // namespace moeflux
