#pragma once
// Compares the state that an import of the original's files has with the one written. Test code only.

#include <gtest/gtest.h>

#include <bit>
#include <cstddef>
#include <cstdint>
#include <variant>
#include <vector>

#include "model/config.h"
#include "state/testing/original_rope.h"

namespace moeflux {

// `found` and `expected` are bits_of() states at `position`. Exact, but for the keys that an import converts.
inline void expect_imported(const ModelConfig& config, std::uint32_t position,
                            const std::vector<std::uint32_t>& found,
                            const std::vector<std::uint32_t>& expected) {
  ASSERT_EQ(found.size(), expected.size());
  if (config.family == Family::qwen3_5_moe) {
    EXPECT_TRUE(found == expected);
    return;
  }
  std::size_t at = 0;
  for (std::size_t layer = 0; layer < config.layers.size(); ++layer) {
    const auto& mla = std::get<MlaConfig>(config.layers[layer].mixer);
    for (std::uint32_t p = 0; p < position; ++p)
      for (std::uint32_t c = 0; c < mla.latent_dim + mla.rope_dim; ++c, ++at) {
        const auto number = std::bit_cast<float>(found[at]), wanted = std::bit_cast<float>(expected[at]);
        const double tolerance = c < mla.latent_dim ? 0 : import_tolerance(2.0 * wanted, p);
        ASSERT_NEAR(number, wanted, tolerance)
            << "layer " << layer << ", position " << p << ", channel " << c;
      }
  }
  ASSERT_EQ(at, found.size());
}

}  // namespace moeflux
