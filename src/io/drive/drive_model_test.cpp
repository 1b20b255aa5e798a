#include "io/drive/drive_model.h"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include "base/testing/expect_contract.h"

namespace moeflux {
namespace {

using namespace std::chrono_literals;

TEST(DriveModel, AddsLatencyAndTransferTime) {
  DriveModel model({.bytes_per_second = 1'000'000'000, .latency = 100us});
  EXPECT_EQ(model.submit(0ns, 1'000'000), 1100us);
  EXPECT_EQ(model.free_at(), 1100us);
}

TEST(DriveModel, OverlapsLatenciesAndSharesTheBandwidth) {
  DriveModel model({.bytes_per_second = 1'000'000'000, .latency = 100us});
  EXPECT_EQ(model.submit(0ns, 1'000'000), 1100us);
  EXPECT_EQ(model.submit(0ns, 1'000'000), 2100us);     // its latency ends during the first transfer
  EXPECT_EQ(model.submit(2050us, 1'000'000), 3150us);  // its latency ends after the second transfer
}

TEST(DriveModel, AddsTheLatencyAgainWhenIdle) {
  DriveModel model({.bytes_per_second = 1'000'000'000, .latency = 100us});
  EXPECT_EQ(model.submit(0ns, 1'000), 101us);
  EXPECT_EQ(model.submit(5ms, 1'000), 5101us);
}

TEST(DriveModel, RoundsTheTransferTimeUp) {
  const DriveModel model({.bytes_per_second = 3'000'000'000});
  EXPECT_EQ(model.transfer_time(0), 0ns);
  EXPECT_EQ(model.transfer_time(1), 1ns);
  EXPECT_EQ(model.transfer_time(3), 1ns);
  EXPECT_EQ(model.transfer_time(4), 2ns);
  EXPECT_EQ(model.transfer_time(3'000'000'000), 1s);
}

TEST(DriveModel, SaturatesInsteadOfWrappingAround) {
  DriveModel model({.bytes_per_second = 1, .latency = 1min});
  EXPECT_EQ(model.submit(0ns, ~std::uint64_t{0}), std::chrono::nanoseconds::max());
  EXPECT_EQ(model.submit(std::chrono::nanoseconds::max(), 1), std::chrono::nanoseconds::max());
  const DriveModel fast({.bytes_per_second = ~std::uint64_t{0}});
  EXPECT_EQ(fast.transfer_time(~std::uint64_t{0}), 1s);
}

TEST(DriveModel, RequiresBandwidthAndANonNegativeLatency) {
  EXPECT_CONTRACT(DriveModel({.bytes_per_second = 0}), "the bandwidth is at least 1 byte per second");
  EXPECT_CONTRACT(DriveModel({.bytes_per_second = 1, .latency = -1ns}), "the latency is not negative");
}

RC_GTEST_PROP(DriveModel, IsNeverFasterThanItsBandwidthOrItsLatency, ()) {
  const SimulatedDriveSpeed speed{*rc::gen::inRange<std::uint64_t>(1'000'000, 10'000'000'000),
                                  std::chrono::nanoseconds(*rc::gen::inRange(0, 1'000'000))};
  DriveModel model(speed);
  std::chrono::nanoseconds now{0};
  std::chrono::nanoseconds last{0};
  std::chrono::nanoseconds busy{0};
  for (const auto& [pause, bytes] : *rc::gen::container<std::vector<std::pair<std::uint32_t, std::uint32_t>>>(
           rc::gen::pair(rc::gen::inRange(0U, 3'000'000U), rc::gen::inRange(0U, 8'000'000U)))) {
    now += std::chrono::nanoseconds(pause);
    const std::chrono::nanoseconds end = model.submit(now, bytes);
    busy += model.transfer_time(bytes);
    RC_ASSERT(end >= now + speed.latency + model.transfer_time(bytes));
    RC_ASSERT(end >= last + model.transfer_time(bytes));
    RC_ASSERT(end >= busy);
    // It is idle only until the latency of the next read has passed.
    RC_ASSERT(end == last + model.transfer_time(bytes) ||
              end == now + speed.latency + model.transfer_time(bytes));
    last = end;
  }
}

}  // namespace
}  // namespace moeflux
