#include "base/trace.h"

#include <gtest/gtest.h>

#include <string_view>

#include "base/testing/allocation_counter.h"

namespace moeflux {
namespace {

using std::chrono::microseconds;

TraceEvent event_of(std::uint32_t layer) {
  return {.name = "experts",
          .track = TraceTrack::read,
          .is_speculative = true,
          .layer = layer,
          .expert = 7,
          .bytes = 4096,
          .begin = TraceClock::time_point(microseconds(layer)),
          .end = TraceClock::time_point(microseconds(layer + 5))};
}

TEST(TraceBuffer, IsEmptyAtFirst) {
  const TraceBuffer buffer;
  EXPECT_TRUE(buffer.events().empty());
  EXPECT_EQ(buffer.dropped(), 0u);
}

TEST(TraceBuffer, KeepsEventsInOrder) {
  TraceBuffer buffer(8);
  for (const std::uint32_t layer : {3u, 1u, 2u}) buffer.add(event_of(layer));
  ASSERT_EQ(buffer.events().size(), 3u);
  EXPECT_EQ(buffer.events()[0].layer, 3u);
  EXPECT_EQ(buffer.events()[1].layer, 1u);
  const TraceEvent& last = buffer.events()[2];
  EXPECT_EQ(std::string_view(last.name), "experts");
  EXPECT_EQ(last.track, TraceTrack::read);
  EXPECT_TRUE(last.is_speculative);
  EXPECT_EQ(last.layer, 2u);
  EXPECT_EQ(last.expert, 7u);
  EXPECT_EQ(last.bytes, 4096u);
  EXPECT_EQ(last.begin, TraceClock::time_point(microseconds(2)));
  EXPECT_EQ(last.end, TraceClock::time_point(microseconds(7)));
}

TEST(TraceBuffer, KeepsTheOldestEventsWhenFullAndCountsTheDroppedOnes) {
  TraceBuffer buffer(4);
  for (std::uint32_t layer = 0; layer < 7; ++layer) buffer.add(event_of(layer));
  ASSERT_EQ(buffer.events().size(), 4u);
  EXPECT_EQ(buffer.events().back().layer, 3u);
  EXPECT_EQ(buffer.dropped(), 3u);
}

TEST(TraceBuffer, AcceptsEventsAgainAfterClearAndKeepsTheDropCount) {
  TraceBuffer buffer(2);
  for (std::uint32_t layer = 0; layer < 3; ++layer) buffer.add(event_of(layer));
  buffer.clear();
  EXPECT_TRUE(buffer.events().empty());
  EXPECT_EQ(buffer.dropped(), 1u);
  for (std::uint32_t layer = 10; layer < 14; ++layer) buffer.add(event_of(layer));
  ASSERT_EQ(buffer.events().size(), 2u);
  EXPECT_EQ(buffer.events().front().layer, 10u);
  EXPECT_EQ(buffer.dropped(), 3u);
}

TEST(TraceBuffer, DropsEverythingWithCapacityZero) {
  TraceBuffer buffer(0);
  buffer.add(event_of(1));
  EXPECT_TRUE(buffer.events().empty());
  EXPECT_EQ(buffer.dropped(), 1u);
}

TEST(TraceBuffer, AllocatesNothingAfterConstruction) {
  TraceBuffer buffer;
  const AllocationCounter counter;
  for (int round = 0; round < 3; ++round) {
    for (std::uint32_t layer = 0; layer < TraceBuffer::kCapacity + 10; ++layer) buffer.add(event_of(layer));
    EXPECT_EQ(buffer.events().size(), TraceBuffer::kCapacity);
    buffer.clear();
  }
  EXPECT_EQ(counter.allocations(), 0u);
  EXPECT_EQ(buffer.dropped(), 30u);
}

}  // namespace
}  // namespace moeflux
