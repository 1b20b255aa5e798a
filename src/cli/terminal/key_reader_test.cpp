#include "cli/terminal/key_reader.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <string>
#include <vector>

namespace moeflux::cli {

// For the messages of failed tests.
void PrintTo(const Key& key, std::ostream* out) {
  *out << (key.ctrl ? "Ctrl-" : "") << (key.alt ? "Alt-" : "") << (key.shift ? "Shift-" : "") << '#'
       << static_cast<int>(key.name) << " '" << key.text << "'" << (key.was_cut ? " cut" : "");
}

namespace {

using testing::ElementsAre;
using testing::IsEmpty;

std::vector<Key> keys_of(std::string_view bytes, bool flush = true) {
  KeyReader reader;
  std::vector<Key> keys;
  reader.push(bytes, keys);
  if (flush) reader.flush(keys);
  return keys;
}

Key typed(std::string text) { return {.name = KeyName::character, .text = std::move(text)}; }
Key named(KeyName name) { return {.name = name, .text = {}}; }
Key ctrl(Key key) { return key.ctrl = true, key; }
Key alt(Key key) { return key.alt = true, key; }
Key shift(Key key) { return key.shift = true, key; }
Key paste(std::string text) { return {.name = KeyName::paste, .text = std::move(text)}; }

TEST(KeyReader, ReadsCharacters) {
  EXPECT_THAT(keys_of("a\u00E9\u6F22\U0001F600"),
              ElementsAre(typed("a"), typed("\u00E9"), typed("\u6F22"), typed("\U0001F600")));
}

TEST(KeyReader, WaitsForTheRestOfACharacter) {
  KeyReader reader;
  std::vector<Key> keys;
  reader.push("\xF0\x9F", keys);
  EXPECT_THAT(keys, IsEmpty());
  EXPECT_EQ(reader.pending(), KeyReader::Pending::character);
  reader.push("\x98\x80", keys);
  EXPECT_THAT(keys, ElementsAre(typed("\U0001F600")));
  EXPECT_EQ(reader.pending(), KeyReader::Pending::nothing);
}

TEST(KeyReader, ReplacesInvalidUtf8) {
  EXPECT_THAT(keys_of("\xFF\xC3(\xE2\x82"),
              ElementsAre(typed("\uFFFD"), typed("\uFFFD"), typed("("), typed("\uFFFD")));
  EXPECT_THAT(keys_of("\xED\xA0\x80"), ElementsAre(typed("\uFFFD"), typed("\uFFFD"), typed("\uFFFD")));
  EXPECT_THAT(keys_of("\xC2\x9B"), IsEmpty()) << "a C1 control is nobody's key";
}

TEST(KeyReader, ReadsControlKeys) {
  EXPECT_THAT(
      keys_of(std::string("\x01\x03\x1A\x1F\0", 5)),
      ElementsAre(ctrl(typed("a")), ctrl(typed("c")), ctrl(typed("z")), ctrl(typed("_")), ctrl(typed("@"))));
  EXPECT_THAT(keys_of("\r\n\t\x08\x7F"),
              ElementsAre(named(KeyName::enter), named(KeyName::enter), named(KeyName::tab),
                          named(KeyName::backspace), named(KeyName::backspace)));
}

TEST(KeyReader, ReadsAltAsAPrefix) {
  EXPECT_THAT(keys_of("\x1B"
                      "b\x1B\r\x1B\x7F"),
              ElementsAre(alt(typed("b")), alt(named(KeyName::enter)), alt(named(KeyName::backspace))));
}

struct Sequence {
  const char* bytes;
  Key key;
};

TEST(KeyReader, KnowsTheSequencesOfManyTerminals) {
  const Sequence sequences[] = {
      {"\x1B[A", named(KeyName::up)},
      {"\x1BOB", named(KeyName::down)},
      {"\x1B[C", named(KeyName::right)},
      {"\x1BOD", named(KeyName::left)},
      {"\x1B[H", named(KeyName::home)},
      {"\x1BOH", named(KeyName::home)},
      {"\x1B[1~", named(KeyName::home)},
      {"\x1B[7~", named(KeyName::home)},
      {"\x1B[F", named(KeyName::end)},
      {"\x1BOF", named(KeyName::end)},
      {"\x1B[4~", named(KeyName::end)},
      {"\x1B[8~", named(KeyName::end)},
      {"\x1B[2~", named(KeyName::insert)},
      {"\x1B[3~", named(KeyName::erase)},
      {"\x1B[3;5~", ctrl(named(KeyName::erase))},
      {"\x1B[5~", named(KeyName::page_up)},
      {"\x1B[6~", named(KeyName::page_down)},
      {"\x1B[1;5C", ctrl(named(KeyName::right))},
      {"\x1B[5D", ctrl(named(KeyName::left))},
      {"\x1BOc", ctrl(named(KeyName::right))},
      {"\x1B[1;3D", alt(named(KeyName::left))},
      {"\x1B[1;2A", shift(named(KeyName::up))},
      {"\x1B\x1B[D", alt(named(KeyName::left))},
      {"\x1B[Z", shift(named(KeyName::tab))},
      {"\x1BOM", named(KeyName::enter)},
      {"\x1B[13;2u", shift(named(KeyName::enter))},
      {"\x1B[27;5;13~", ctrl(named(KeyName::enter))},
      {"\x1B[99;5u", ctrl(typed("c"))},
  };
  for (const Sequence& sequence : sequences) {
    EXPECT_THAT(keys_of(sequence.bytes, false), ElementsAre(sequence.key)) << sequence.bytes + 1;
  }
}

TEST(KeyReader, IgnoresUnknownSequencesAsAWhole) {
  EXPECT_THAT(keys_of("\x1B[15~\x1B[[A\x1B[?1;2c\x1BOP\x1B[38;5;1;1;1mx"), ElementsAre(typed("x")));
  EXPECT_THAT(keys_of("\x1B[" + std::string(100'000, '1') + "~x"), ElementsAre(typed("x")));
}

TEST(KeyReader, LetsAControlCharacterBreakOffASequence) {
  EXPECT_THAT(keys_of("\x1B[12\x03"), ElementsAre(ctrl(typed("c"))));
  EXPECT_THAT(keys_of("\x1B[12\x1B[A"), ElementsAre(named(KeyName::up)));
  EXPECT_THAT(keys_of("\x1B[1\u00E9"), ElementsAre(typed("\u00E9")));
}

TEST(KeyReader, ReportsALoneEscapeOnlyOnFlush) {
  KeyReader reader;
  std::vector<Key> keys;
  reader.push("\x1B", keys);
  EXPECT_THAT(keys, IsEmpty());
  EXPECT_EQ(reader.pending(), KeyReader::Pending::sequence);
  reader.flush(keys);
  EXPECT_THAT(keys, ElementsAre(named(KeyName::escape)));
  EXPECT_EQ(reader.pending(), KeyReader::Pending::nothing);
  EXPECT_THAT(keys_of("\x1B["), ElementsAre(alt(typed("["))));
  EXPECT_THAT(keys_of("\x1BO"), ElementsAre(alt(typed("O"))));
  EXPECT_THAT(keys_of("\x1B\x1B"), ElementsAre(named(KeyName::escape), named(KeyName::escape)));
  EXPECT_THAT(keys_of("\x1B[12"), IsEmpty());
}

TEST(KeyReader, DeliversAPasteAsOneKey) {
  EXPECT_THAT(keys_of("a\x1B[200~one\r\ntwo\rthree\n\x1B[201~b"),
              ElementsAre(typed("a"), paste("one\ntwo\nthree\n"), typed("b")));
}

TEST(KeyReader, CleansAPaste) {
  EXPECT_THAT(keys_of("\x1B[200~\ta\x01\x7F\x1B[31mb\xFF\u0085c\x1B[201~"),
              ElementsAre(paste("\ta[31mb\uFFFDc")));
}

TEST(KeyReader, EndsAPasteOnlyAtTheWholeClosingSequence) {
  EXPECT_THAT(keys_of("\x1B[200~a\x1B[20\x1B[201\x1B[201~b"), ElementsAre(paste("a[20[201"), typed("b")));
}

TEST(KeyReader, BoundsAPaste) {
  const std::string longer(kMaxPasteBytes + 10, 'a');
  std::vector<Key> keys = keys_of("\x1B[200~" + longer + "\x1B[201~b");
  ASSERT_EQ(keys.size(), 2u);
  EXPECT_EQ(keys[0].text.size(), kMaxPasteBytes);
  EXPECT_TRUE(keys[0].was_cut);
  EXPECT_EQ(keys[1], typed("b"));
}

TEST(KeyReader, AbandonsAPasteThatDoesNotEnd) {
  KeyReader reader;
  std::vector<Key> keys;
  reader.push("\x1B[200~half", keys);
  EXPECT_EQ(reader.pending(), KeyReader::Pending::paste);
  reader.flush(keys);
  EXPECT_THAT(keys, ElementsAre(paste("half")));
}

RC_GTEST_PROP(KeyReader, GivesTheSameKeysHoweverTheBytesAreSplit,
              (const std::vector<std::uint8_t>& choices)) {
  static constexpr const char* kPieces[] = {
      "\x1B", "[",    "O",  "200~", "201~", "1;5", "A", "~", "\xF0\x9F\x98\x80",
      "\xC3", "\xA9", "\r", "x",    "\x03"};
  std::string bytes;
  for (const std::uint8_t choice : choices) bytes += kPieces[choice % std::size(kPieces)];
  KeyReader reader;
  std::vector<Key> keys;
  for (const char& byte : bytes) reader.push({&byte, 1}, keys);
  reader.flush(keys);
  RC_ASSERT(keys == keys_of(bytes));
  RC_ASSERT(reader.pending() == KeyReader::Pending::nothing);
}

}  // namespace
}  // namespace moeflux::cli
