#include "text/tokenizer/byte_alphabet.h"

#include <gtest/gtest.h>

namespace moeflux {
namespace {

TEST(ByteAlphabet, RoundTripsEveryByte) {
  std::string all, spelled;
  for (int byte = 0; byte < 256; ++byte) all += static_cast<char>(byte);
  append_spelled(spelled, all);
  EXPECT_EQ(bytes_of_spelled(spelled), all);
  EXPECT_EQ(alphabet_character('A'), U'A');
  EXPECT_EQ(alphabet_character(' '), U'\u0120');
  EXPECT_EQ(alphabet_character('\n'), U'\u010A');
  EXPECT_EQ(alphabet_character(0xAD), U'\u0143');
}

TEST(ByteAlphabet, RejectsOtherCharacters) {
  EXPECT_EQ(bytes_of_spelled("a b"), std::nullopt);
  EXPECT_EQ(bytes_of_spelled("<\uFF5CUser\uFF5C>"), std::nullopt);
  EXPECT_EQ(bytes_of_spelled(""), "");
}

}  // namespace
}  // namespace moeflux
