#include "cli/labeled_line.h"

#include <gtest/gtest.h>

#include <sstream>

namespace moeflux::cli {
namespace {

TEST(LabeledLine, IsOneLineIfThatIsEnough) {
  EXPECT_EQ(labeled_line("label", 8, "some text"), "label   some text\n");
  EXPECT_EQ(labeled_line("", 4, ""), "    \n");
}

TEST(LabeledLine, ContinuesBelowItselfAndBreaksAtSpaces) {
  const std::string word(60, 'a');
  EXPECT_EQ(labeled_line("label", 8, word + " " + word), "label   " + word + "\n        " + word + "\n");
}

TEST(LabeledLine, BreaksALongWordAfterAWholeCharacter) {
  std::string word = "x";
  for (int i = 0; i < 100; ++i) word += "\xC3\xA9";
  std::istringstream lines(labeled_line("label", 8, word));
  std::string joined;
  for (std::string line; std::getline(lines, line);) {
    EXPECT_LE(line.size(), kPageColumns);
    EXPECT_NE(static_cast<unsigned char>(line[8]) & 0xC0, 0x80) << "a character is cut";
    joined += line.substr(8);
  }
  EXPECT_EQ(joined, word);
}

TEST(LabeledLine, ReplacesControlCharacters) { EXPECT_EQ(labeled_line("", 2, "a\x1b\nb"), "  a??b\n"); }

}  // namespace
}  // namespace moeflux::cli
