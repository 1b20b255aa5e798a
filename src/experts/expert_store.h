#pragma once
// An ExpertSource that streams the experts of a packed model: as many in memory as the budget allows, the
// others read when they are wanted or hinted.
//
// It connects slabs of memory, a Drive that reads, and the ExpertScheduler that decides what to read into
// which slot. The drive works while the caller computes. The store has no thread: it collects completions and
// submits reads inside begin(), next() and advance_reads(). Only Fetch::next() waits.
//
// A read fails if the drive reports an error, the file is too short, the checksum differs, or no read of a
// wanted record ends within `patience`. The fetch that wants the record then ends with an error that names
// layer, expert, file and cause. The slot is freed as soon as no read writes to it, and the next fetch reads
// the record again. Only complete records are returned.
//
// Owns memory and files; the model is used only while opening. Threads: as ExpertSource. No allocation after
// opening.

#include <array>
#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/function_ref.h"
#include "base/memory/aligned_buffer.h"
#include "base/published.h"
#include "base/result.h"
#include "base/trace.h"
#include "experts/drive_rate.h"
#include "experts/expert_source.h"
#include "experts/scheduler.h"
#include "io/drive/drive.h"
#include "model/packed_model.h"

namespace moeflux {

struct ExpertStoreOptions {
  std::uint64_t budget_bytes = ~std::uint64_t{0};  // for slots; at least one record of every size
  DriveChoice drive = {};
  bool drops_from_page_cache = false;  // for the buffered drive
  bool uses_fixed_buffers = true;
  bool speculates = true;
  bool verifies_reads = false;  // checks the checksum of every record that is read
  // A fetch fails after waiting this long without a completed read of a wanted record.
  std::chrono::nanoseconds patience = std::chrono::seconds(10);
  std::uint64_t piece_bytes = SchedulerOptions().piece_bytes;
  std::uint64_t demand_window_bytes = SchedulerOptions().demand_window_bytes;
  // Returns ready experts while others are read. If false, returns experts only after all reads of the fetch
  // have ended.
  bool overlaps = true;
  bool keeps_in_sweeps = SchedulerOptions().keeps_in_sweeps;
  PolicyMaker make_policy = [](std::uint32_t slots) { return std::make_unique<LruPolicy>(slots); };

  TraceBuffer* trace = nullptr;  // of reads and waits; may be null
  // For tests: wraps the drive of the store.
  std::function<std::unique_ptr<Drive>(std::unique_ptr<Drive>)> wrap_drive = {};
};

class ExpertStore final : public ExpertSource {
 public:
  static Result<std::unique_ptr<ExpertStore>> open(const PackedModel& model,
                                                   const ExpertStoreOptions& options);
  ~ExpertStore() override;

  // Bytes of memory that open() takes for a budget: whole slots, at most all records.
  static std::uint64_t bytes_of(const PackedModel& model, std::uint64_t budget_bytes);
  // The smallest valid budget: one record of every size.
  static std::uint64_t least_bytes(const PackedModel& model);

  std::uint32_t lease_limit() const override { return scheduler_.lease_limit(); }
  void hint(LayerId layer, std::span<const std::uint32_t> experts, float confidence) override;
  void forget_hints() override;
  void advance_reads() override;
  ExpertStatistics statistics() const override;
  ExpertStatistics published_statistics() const override { return published_.read(); }
  const ResidencyMap& residency() const override { return scheduler_.residency(); }

  const Drive& drive() const { return *drive_; }
  const std::vector<std::string>& refusals() const { return refusals_; }
  std::uint32_t slots() const { return scheduler_.slots(); }
  bool holds_all() const;  // every record has a slot

 private:
  using Clock = std::chrono::steady_clock;

  // Where a record is stored, and its checksum.
  struct Stored {
    std::uint32_t file = 0;
    std::uint32_t format = 0;
    std::uint64_t offset = 0;
    std::uint64_t checksum = 0;
  };
  // A read in flight. Its index in reads_ is the tag that the drive gets.
  struct InFlight {
    std::uint64_t tag = 0;  // the scheduler's
    std::uint64_t done_bytes = 0;
    std::uint32_t next_free = 0;
  };

  ExpertStore(ExpertTable table, const ExpertStoreOptions& options, bool fills);

  void start(LayerId layer, std::span<const std::uint32_t> wanted, FetchOrder order) override;
  Result<std::optional<ReadyExpert>> next_ready() override;
  bool is_one_ready() const override { return !error_ && scheduler_.is_one_ready(); }
  void stop() override;
  void release(std::uint32_t slot) override;

  void publish();
  void wait_until(FunctionRef<bool()> is_over);
  void pump(std::chrono::nanoseconds longest_wait);
  bool submit_reads();
  void submit(std::uint32_t index);
  void ended(const DriveCompletion& completion);
  Status check_bytes(const InFlight& in_flight, const DriveCompletion& completion) const;
  Status check_record(std::uint64_t tag) const;
  void trace_read(std::uint64_t tag);
  const Stored& stored(ExpertKey record) const {
    return records_[scheduler_.table().first_record[record.layer.index()] + record.expert.index()];
  }
  std::span<std::byte> memory_of(std::uint32_t slot) const;
  Error failure(ExpertKey record, Error cause) const;
  std::chrono::nanoseconds now() const { return Clock::now() - opened_; }

  const ExpertStoreOptions options_;
  const Clock::time_point opened_ = Clock::now();
  ExpertScheduler scheduler_;
  std::vector<ExpertFormat> formats_;
  std::vector<Stored> records_;
  std::vector<FileStamp> stamps_;  // of the files when they were opened
  std::vector<std::string> refusals_;

  std::vector<HugeBuffer> slabs_;
  std::vector<std::span<std::byte>> slot_memory_;
  std::vector<Clock::time_point> slot_began_;  // when the read of each slot began, for traces
  std::vector<InFlight> reads_;                // [queue depth of the drive]
  std::uint32_t first_free_read_ = 0;
  std::uint32_t reads_in_flight_ = 0;
  DriveRate rate_;
  std::uint64_t wanted_ended_ = 0;  // pieces of wanted records that have ended
  std::chrono::nanoseconds waiting_{0};
  std::optional<Error> error_;             // of the open fetch
  LayerId layer_{0};                       // of the open fetch
  Published<ExpertStatistics> published_;  // see publish()

  std::unique_ptr<Drive> drive_;  // destroyed first: it may be writing into the slabs
};

}  // namespace moeflux
