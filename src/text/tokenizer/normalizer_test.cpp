#include "text/tokenizer/normalizer.h"

#include <gtest/gtest.h>
#include <utf8proc.h>

#include "text/unicode/utf8.h"

namespace moeflux {
namespace {

std::string in(NormalForm form, std::string_view text) { return Normalizer({form}).normalized(text); }

TEST(Normalizer, ComposesAndDecomposes) {
  EXPECT_EQ(in(NormalForm::nfc, "e\u0301 A\u030A \u212B"), "\u00e9 \u00C5 \u00C5");
  EXPECT_EQ(in(NormalForm::nfd, "\u00e9\uAC01"), "e\u0301\u1100\u1161\u11A8");
  EXPECT_EQ(in(NormalForm::nfkc, "\uFB01\u2460\uFF21"), "fi1A");
  EXPECT_EQ(in(NormalForm::nfkd, "\uFB01\u00e9"), "fie\u0301");
  EXPECT_EQ(in(NormalForm::nfc, "\u1100\u1161\u11A8 \uAC00\u11A8"), "\uAC01 \uAC01");
  EXPECT_EQ(in(NormalForm::nfc, "q\u0307\u0323"), "q\u0323\u0307");
  EXPECT_EQ(in(NormalForm::nfc, "\u0301a"), "\u0301a");
  EXPECT_EQ(Normalizer().normalized("e\u0301"), "e\u0301");
  EXPECT_EQ(Normalizer({NormalForm::nfd, NormalForm::nfc}).normalized("\u212B"), "\u00C5");
}

// The reference uses Unicode 9, in which a mark of Unicode 10 is unassigned and other marks are not reordered
// across it.
TEST(Normalizer, KeepsMarksNewerThanUnicode9InPlace) {
  EXPECT_EQ(in(NormalForm::nfc, "o\u0345\u07FD\u0334"), "o\u0345\u07FD\u0334");
  EXPECT_EQ(in(NormalForm::nfc, "e\u1DF6\u0301"), "e\u1DF6\u0301");
  EXPECT_EQ(in(NormalForm::nfd, "\U00011938"), "\U00011938");
}

// Compares with utf8proc, for every character with marks, jamo and voicing marks around it, to check the
// ranges that are assumed not to change.
TEST(Normalizer, AgreesWithUtf8procOnEveryCharacter) {
  for (char32_t code = 1; code < 0x2FA20; ++code) {
    if ((code >= 0xD800 && code <= 0xDFFF) ||
        utf8proc_category(static_cast<utf8proc_int32_t>(code)) == UTF8PROC_CATEGORY_CN)
      continue;
    std::string text = "a";
    append_utf8(text, code);
    for (const std::string_view after : {"", "\u0301", "\u0323\u0301", "\u3099", "\u11A8"}) {
      const std::string whole = text + std::string(after) + "a";
      auto* expected = utf8proc_NFC(reinterpret_cast<const utf8proc_uint8_t*>(whole.c_str()));
      const std::string found = in(NormalForm::nfc, whole);
      const bool same = found == reinterpret_cast<const char*>(expected);
      free(expected);
      // Except for characters newer than Unicode 9, which do not change.
      if (!same) {
        ASSERT_EQ(found, whole) << "U+" << std::hex << static_cast<std::uint32_t>(code);
      }
    }
  }
}

TEST(Normalizer, SortsALongRunOfMarksQuickly) {
  std::string text = "a", low, high;
  for (int i = 0; i < 200'000; ++i) {
    text += "\u0301\u0316";
    low += "\u0316";
    high += "\u0301";
  }
  const std::string found = in(NormalForm::nfd, text);
  EXPECT_TRUE(found == "a" + low + high);
}

TEST(Normalizer, AdjustsRangesToTheText) {
  const Normalizer nfc({NormalForm::nfc});
  std::string text = "x e\u0301y \u212Bz";  // e\u0301 is [2, 5), \u212B is [7, 10)
  std::vector<TextRange> data{{0, 1}, {3, 6}, {7, 10}, {11, 11}};
  nfc.normalize(text, data);
  EXPECT_EQ(text, "x \u00e9y \u00C5z");
  EXPECT_EQ(data, (std::vector<TextRange>{{0, 1}, {2, 5}, {6, 8}, {9, 9}}));
}

}  // namespace
}  // namespace moeflux
