#pragma once
// Which channels of a head rotate together in a rotary position embedding. Plain values: any thread.

namespace moeflux {

enum class RopePairing {
  half_split,   // channel i rotates with channel i + dims/2
  interleaved,  // channel 2i rotates with channel 2i + 1
};

}  // namespace moeflux
