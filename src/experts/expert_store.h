#pragma once
// The experts of a packed model, streamed: as many in memory as the budget allows, the others read when they are wanted.
//
// It puts together what decides nothing by itself: slabs of memory, a Drive that reads, and the ExpertScheduler that
// says what and where. The drive works on while its caller computes; the store looks at it whenever it is called.
// Whoever waits for an expert waits in Fetch::next().
//
// A read that fails, is cut off, does not fit its checksum or does not come back ends the fetch that wants it with an
// error that names layer, expert, file and cause. The slot is given back as soon as nothing writes to it any more; the
// next fetch reads again. Nothing is ever handed out that was not read whole.
//
// Owns memory and files; the model is used while opening only. One thread at a time. No allocation after opening.

#include <array>
#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/aligned_buffer.h"
#include "base/function_ref.h"
#include "base/result.h"
#include "base/trace.h"
#include "experts/drive_rate.h"
#include "experts/expert_source.h"
#include "experts/scheduler.h"
#include "io/drive.h"
#include "model/packed_model.h"

namespace moeflux {

struct ExpertStoreOptions {
  std::uint64_t budget_bytes = ~std::uint64_t{0};  // of slots; at least one record of every size
  DriveChoice drive = {};
  bool drops_from_page_cache = false;  // buffered
  bool uses_fixed_buffers = true;
  bool speculates = true;
  bool verifies_reads = false;  // compares every record that is read with its checksum
  // So long without a completion while somebody waits, and the drive is said to be gone.
  std::chrono::nanoseconds patience = std::chrono::seconds(10);
  std::uint64_t piece_bytes = SchedulerOptions().piece_bytes;
  std::uint64_t demand_window_bytes = SchedulerOptions().demand_window_bytes;
  bool overlaps = true;  // hands out what is there while the rest is read; else when all reads have ended
  bool keeps_in_sweeps = SchedulerOptions().keeps_in_sweeps;
  PolicyMaker make_policy = [](std::uint32_t slots) { return std::make_unique<LruPolicy>(slots); };

  TraceBuffer* trace = nullptr;  // of reads and waits; none: null
  // Stands between the store and its drive, for tests.
  std::function<std::unique_ptr<Drive>(std::unique_ptr<Drive>)> wrap_drive = {};
};

class ExpertStore final : public ExpertSource {
 public:
  static Result<std::unique_ptr<ExpertStore>> open(const PackedModel& model,
                                                   const ExpertStoreOptions& options);
  ~ExpertStore() override;

  // Memory that open() takes with a budget: whole slots, at most all records.
  static std::uint64_t bytes_of(const PackedModel& model, std::uint64_t budget_bytes);
  // The least budget: one record of every size.
  static std::uint64_t least_bytes(const PackedModel& model);

  std::uint32_t lease_limit() const override { return scheduler_.lease_limit(); }
  void hint(LayerId layer, std::span<const std::uint32_t> experts, float confidence) override;
  void forget_hints() override;
  void poll() override;
  ExpertStatistics statistics() const override;

  const Drive& drive() const { return *drive_; }
  const std::vector<std::string>& refusals() const { return refusals_; }
  std::uint32_t slots() const { return scheduler_.slots(); }
  bool holds_all() const;  // every record has a slot

 private:
  using Clock = std::chrono::steady_clock;

  // Where a record lies, and how to see that it is the right one.
  struct Stored {
    std::uint32_t file = 0;
    std::uint32_t format = 0;
    std::uint64_t offset = 0;
    std::uint64_t checksum = 0;
  };
  // A read that is out. Its index is the drive's tag.
  struct Out {
    std::uint64_t tag = 0;
    std::uint64_t done_bytes = 0;
    std::uint32_t next_free = 0;
  };

  ExpertStore(ExpertTable table, const ExpertStoreOptions& options, bool fills);

  void start(LayerId layer, std::span<const std::uint32_t> wanted, FetchOrder order) override;
  Result<std::optional<HandedOut>> hand_out() override;
  bool is_one_ready() const override { return !error_ && scheduler_.is_one_ready(); }
  void stop() override;
  void release(std::uint32_t slot) override;

  void wait_until(FunctionRef<bool()> is_over);
  void pump(std::chrono::nanoseconds longest_wait);
  void submit_reads();
  void submit(std::uint32_t out);
  void ended(const DriveCompletion& completion);
  // Of the read `out`: what is wrong with what came, if anything.
  Status check_bytes(const Out& out, const DriveCompletion& completion) const;
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
  std::vector<FileStamp> stamps_;  // of the files, when they were opened
  std::vector<std::string> refusals_;

  std::vector<HugeBuffer> slabs_;
  std::vector<std::span<std::byte>> slot_memory_;
  std::vector<Clock::time_point> slot_began_;  // reading, for traces
  std::vector<Out> outs_;
  std::uint32_t first_free_out_ = 0;
  std::uint32_t outs_taken_ = 0;
  DriveRate rate_;
  std::uint64_t wanted_ended_ = 0;  // pieces of what was wanted
  std::chrono::nanoseconds waiting_{0};
  std::optional<Error> error_;  // of the open fetch
  LayerId layer_{0};            // of it

  std::unique_ptr<Drive> drive_;  // goes first: it may be writing into the slabs
};

}  // namespace moeflux
