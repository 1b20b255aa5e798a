#pragma once
// Counts the outcomes of speculative reads, and decides whether hints are still worth reading.
//
// A guess is a record that is read because of a hint. The scheduler reports its life:
//
//   begin ──▶ confirm | refute, at most once ──▶ use | waste | forget
//
// confirm() and refute() judge the hint: did its layer want the record? Each moves `precision`, a running
// average over the last 32 or so judgements. use() and waste() count whether the read was useful.
//
// While precision is at least kLeastPrecision, every hint of enough confidence is read. Below that, only an
// occasional guess is read as a probe, because a predictor may improve. The interval between probes doubles
// from 256 fetches to 65,536 for as long as no guess is confirmed. The threshold is low because guesses use
// only idle time of the drive.
//
// Plain arithmetic. One thread at a time.

#include <cstdint>

#include "experts/expert_statistics.h"

namespace moeflux {

class GuessAccounting {
 public:
  // ---- The life of a guess ----
  void begin() { ++unused_; }
  void confirm();
  void refute();
  // The open fetch uses the guess. `bytes` bytes of it were submitted ahead of time; `is_ready`: all had
  // arrived.
  void use(bool is_ready, std::uint64_t bytes);
  // The guess leaves its slot unused after `bytes` of it were submitted.
  void waste(std::uint64_t bytes);
  // The guess became an ordinary record without being counted as used.
  void forget() { --unused_; }

  // ---- Trust ----

  // Whether a hint of this confidence may be read in the fetch numbered `fetch`. A call may use up a probe,
  // so call this only for a hint that would be read now.
  bool allows_read(float confidence, std::uint64_t fetch);
  // At least half of the guesses are right: hints may evict records that they do not name.
  bool is_trusted() const { return precision_ >= kTrustedPrecision; }
  // Nearly always right: may be read ahead like a wanted record.
  bool is_certain(float confidence) const {
    return confidence >= kCertain && precision_ >= kCertainPrecision;
  }

  std::uint32_t unused() const { return unused_; }  // guesses in slots
  void add_to(ExpertStatistics& statistics) const { statistics += counts_; }

  static constexpr float kLeastPrecision = 0.35F;
  static constexpr float kLeastConfidence = 0.1F;
  static constexpr std::uint32_t kFirstProbeInterval = 256, kLongestProbeInterval = 1 << 16;  // fetches

 private:
  static constexpr float kTrustedPrecision = 0.5F;
  static constexpr float kCertain = 0.95F, kCertainPrecision = 0.9F;
  static constexpr float kPrecisionMemory = 1.0F / 32;

  void judge(float outcome) { precision_ += (outcome - precision_) * kPrecisionMemory; }

  float precision_ = 0.5F;
  std::uint64_t next_probe_ = 0;      // a guess may be read from this fetch on, although precision is low
  std::uint32_t probe_interval_ = 0;  // fetches; 0: the next probe starts over
  std::uint32_t unused_ = 0;
  ExpertStatistics counts_;  // of guesses only
};

}  // namespace moeflux
