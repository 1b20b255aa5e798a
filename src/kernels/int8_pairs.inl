// dot4 (dots_avx512vnni.h) for instruction sets that add pairs of products in 16 bits. Included after codes_vector.inl; the
// including file has defined
//
//   add_pairs(sum, codes, x)   sum + the products of the four bytes of a lane, whose pairs fit into 16 bits

namespace moeflux {
namespace {

// Two products of 8-bit codes do not fit (2 * 255 * 127): their highest bit goes for itself.
template <unsigned Bits>
MF_LANES Ints dot4(Ints sum, Ints codes, Ints x) {
  if constexpr (Bits < 8) {
    return add_pairs(sum, codes, x);
  } else {
    const Ints high = shift_right<7>(codes) & every_byte<1>();
    const Ints top = add_pairs(broadcast(std::int32_t{0}), high, x);
    return add_pairs(sum + shift_left<7>(top), codes & every_byte<0x7f>(), x);
  }
}

}  // namespace
}  // namespace moeflux
