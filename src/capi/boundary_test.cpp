// How failures cross the boundary to C: statuses, and messages cut to size.

#include "capi/boundary.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <new>
#include <stdexcept>
#include <string>
#include <string_view>

namespace moeflux {
namespace {

std::string message_of(std::string_view message) {
  mf_message why;
  std::memset(&why, 'x', sizeof why);
  EXPECT_EQ(fail(&why, MF_CORRUPT_DATA, message), MF_CORRUPT_DATA);
  EXPECT_NE(std::memchr(why.text, '\0', sizeof why.text), nullptr) << "a message ends inside its buffer";
  return why.text;
}

constexpr std::size_t kRoom = sizeof(mf_message::text) - 1;

TEST(MessageInC, IsWholeIfItFits) {
  EXPECT_EQ(message_of(""), "");
  EXPECT_EQ(message_of("a: b"), "a: b");
  const std::string longest(kRoom, 'a');
  EXPECT_EQ(message_of(longest), longest);
  const std::string ends_with_a_character = std::string(kRoom - 3, 'a') + "€";
  EXPECT_EQ(message_of(ends_with_a_character), ends_with_a_character);
}

TEST(MessageInC, IsCutBetweenCharacters) {
  EXPECT_EQ(message_of(std::string(kRoom + 1, 'a')), std::string(kRoom, 'a'));
  for (const std::string_view character : {"é", "€", "😀"})
    for (std::size_t before = kRoom - character.size(); before <= kRoom; ++before) {
      const std::string prefix(before, 'a');
      const bool fits = before + character.size() <= kRoom;
      EXPECT_EQ(message_of(prefix + std::string(character) + "bcdef"),
                fits ? prefix + std::string(character) : prefix)
          << character << " at byte " << before;
    }
}

TEST(MessageInC, MayBeNull) { EXPECT_EQ(fail(nullptr, MF_TRUNCATED, "not written"), MF_TRUNCATED); }

TEST(BoundaryToC, TurnsErrorsAndExceptionsIntoStatuses) {
  mf_message why = {};
  EXPECT_EQ(at_boundary(&why, [] { return Status(); }), MF_OK);
  EXPECT_EQ(at_boundary(&why, []() -> Status { return Error(ErrorCode::no_space, "the disk is full"); }),
            MF_NO_SPACE);
  EXPECT_STREQ(why.text, "the disk is full");
  EXPECT_EQ(at_boundary(&why, []() -> Status { throw std::bad_alloc(); }), MF_OUT_OF_MEMORY);
  EXPECT_EQ(at_boundary(&why, []() -> Status { throw std::logic_error("odd"); }), MF_INTERNAL);
  EXPECT_STREQ(why.text, "odd");
  EXPECT_EQ(at_boundary(&why, []() -> Status { throw 5; }), MF_INTERNAL);
}

}  // namespace
}  // namespace moeflux
