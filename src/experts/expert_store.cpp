#include "experts/expert_store.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "base/check.h"
#include "base/hash.h"
#include "base/sizes.h"
#include "experts/record_view.h"
#include "io/direct_io.h"
#include "io/system_error.h"

namespace moeflux {
namespace {

constexpr std::size_t kCompletionsAtOnce = 64;

struct RecordSizes {
  std::vector<SlabShape> slabs;        // `slots` is the number of records
  std::vector<std::uint32_t> slab_of;  // by format
};

// Sizes of the formats that have records. A manifest may list formats without any.
RecordSizes sizes_of(const PackedModel& model) {
  RecordSizes sizes;
  const Manifest& manifest = model.manifest();
  sizes.slab_of.resize(manifest.expert_formats.size());
  std::vector<bool> is_used(manifest.expert_formats.size());
  for (const ExpertFile& file : manifest.experts)
    for (const ExpertRecord& record : file.records) is_used[record.format] = true;
  for (std::size_t i = 0; i < is_used.size(); ++i) {
    if (!is_used[i]) continue;
    const RecordLayout layout = record_layout(manifest.expert_formats[i]);
    const auto same = [&](const SlabShape& slab) {
      return slab.record_bytes == layout.record_bytes && slab.down_offset == layout.down_offset;
    };
    const auto found = std::ranges::find_if(sizes.slabs, same);
    sizes.slab_of[i] = static_cast<std::uint32_t>(found - sizes.slabs.begin());
    if (found == sizes.slabs.end()) sizes.slabs.push_back({layout.record_bytes, layout.down_offset, 0});
  }
  for (const ExpertFile& file : manifest.experts)
    for (const ExpertRecord& record : file.records) ++sizes.slabs[sizes.slab_of[record.format]].slots;
  return sizes;
}

// Returns count * part / whole, rounded down. Requires: part <= whole.
std::uint32_t share_of(std::uint32_t count, std::uint64_t part, std::uint64_t whole) {
  __extension__ using Wide = unsigned __int128;
  return static_cast<std::uint32_t>(static_cast<Wide>(count) * part / whole);
}

// Reduces the slots to what fits in the budget. Every size gets one slot and its proportional share of the
// rest. The sum is within the budget if the budget holds one record of every size.
void divide(std::vector<SlabShape>& slabs, std::uint64_t budget_bytes) {
  std::uint64_t all_bytes = 0, least_bytes = 0;
  for (const SlabShape& slab : slabs) {
    all_bytes += slab.slots * slab.record_bytes;
    least_bytes += slab.record_bytes;
  }
  if (budget_bytes >= all_bytes) return;
  const std::uint64_t rest = budget_bytes - std::min(budget_bytes, least_bytes);
  for (SlabShape& slab : slabs)
    slab.slots = slab.slots == 1 ? 1 : 1 + share_of(slab.slots - 1, rest, all_bytes - least_bytes);
}

std::uint64_t bytes_of_slots(const std::vector<SlabShape>& slabs) {
  std::uint64_t bytes = 0;
  for (const SlabShape& slab : slabs) bytes += slab.slots * slab.record_bytes;
  return bytes;
}

}  // namespace

std::uint64_t ExpertStore::least_bytes(const PackedModel& model) {
  std::vector<SlabShape> slabs = sizes_of(model).slabs;
  for (SlabShape& slab : slabs) slab.slots = 1;
  return bytes_of_slots(slabs);
}

std::uint64_t ExpertStore::bytes_of(const PackedModel& model, std::uint64_t budget_bytes) {
  std::vector<SlabShape> slabs = sizes_of(model).slabs;
  divide(slabs, budget_bytes);
  return bytes_of_slots(slabs);
}

ExpertStore::ExpertStore(ExpertTable table, const ExpertStoreOptions& options, bool fills)
    : options_(options),
      scheduler_(std::move(table),
                 {.piece_bytes = options.piece_bytes,
                  .demand_window_bytes = options.demand_window_bytes,
                  .keeps_in_sweeps = options.keeps_in_sweeps,
                  .speculates = options.speculates,
                  .fills = fills},
                 options.make_policy) {}

ExpertStore::~ExpertStore() = default;

Result<std::unique_ptr<ExpertStore>> ExpertStore::open(const PackedModel& model,
                                                       const ExpertStoreOptions& options) {
  const std::uint64_t least = least_bytes(model);
  if (options.budget_bytes < least)
    return Error(
        ErrorCode::invalid_argument,
        fmt::format("the expert cache is too small: expected at least {}, one expert of every size, found {}",
                    human_bytes(least), human_bytes(options.budget_bytes)));
  RecordSizes sizes = sizes_of(model);
  const std::uint64_t all_bytes = bytes_of_slots(sizes.slabs);
  divide(sizes.slabs, options.budget_bytes);

  ExpertTable table;
  table.slabs = sizes.slabs;
  std::vector<Stored> records;
  std::vector<std::filesystem::path> paths;
  const std::vector<ExpertFile>& files = model.manifest().experts;
  table.first_record.push_back(0);
  std::size_t next = 0;  // file
  for (std::uint32_t layer = 0; layer < model.config().layers.size(); ++layer) {
    if (next < files.size() && files[next].layer == LayerId(layer)) {
      const auto file = static_cast<std::uint32_t>(next);
      for (const ExpertRecord& record : files[next].records) {
        table.slab_of.push_back(sizes.slab_of[record.format]);
        records.push_back({file, record.format, record.offset, record.checksum});
      }
      paths.push_back(model.path() / files[next].file);
      ++next;
    }
    table.first_record.push_back(static_cast<std::uint32_t>(records.size()));
  }

  const bool holds_all = bytes_of_slots(sizes.slabs) == all_bytes;
  std::unique_ptr<ExpertStore> store(new ExpertStore(std::move(table), options, holds_all));
  store->formats_ = model.manifest().expert_formats;
  store->records_ = std::move(records);
  DriveOptions drive_options;
  drive_options.choice = options.drive;
  drive_options.drop_from_page_cache = options.drops_from_page_cache;
  drive_options.uses_fixed_buffers = options.uses_fixed_buffers;
  for (const SlabShape& slab : sizes.slabs) {
    MF_TRY(HugeBuffer memory, HugeBuffer::create(slab.slots * slab.record_bytes));
    for (std::uint32_t i = 0; i < slab.slots; ++i)
      store->slot_memory_.push_back(memory.bytes().subspan(i * slab.record_bytes, slab.record_bytes));
    drive_options.memory.push_back(memory.bytes());
    store->slabs_.push_back(std::move(memory));
  }
  store->slot_began_.resize(store->slot_memory_.size());
  MF_TRY(OpenedDrive opened, open_drive(paths, drive_options));
  store->refusals_ = std::move(opened.refusals);
  store->drive_ = std::move(opened.drive);
  for (std::uint32_t file = 0; file < paths.size(); ++file) {
    MF_TRY(const FileStamp stamp, store->drive_->stamp(file));
    if (stamp.size_bytes != files[file].bytes)
      return Error(ErrorCode::corrupt_data,
                   fmt::format("'{}': expected {} bytes (from the manifest), found {}", paths[file].native(),
                               files[file].bytes, stamp.size_bytes));
    store->stamps_.push_back(stamp);
  }
  if (options.wrap_drive) store->drive_ = options.wrap_drive(std::move(store->drive_));
  store->reads_.resize(store->drive_->depth());
  for (std::uint32_t i = 0; i < store->reads_.size(); ++i) store->reads_[i].next_free = i + 1;
  return store;
}

bool ExpertStore::holds_all() const { return scheduler_.slots() == records_.size(); }

std::span<std::byte> ExpertStore::memory_of(std::uint32_t slot) const { return slot_memory_[slot]; }

// ---- Called by the layers ----

void ExpertStore::start(LayerId layer, std::span<const std::uint32_t> wanted, FetchOrder order) {
  layer_ = layer;
  pump(std::chrono::nanoseconds(0));  // a record that has arrived counts as a hit
  scheduler_.begin_fetch(layer, wanted, order);
  submit_reads();
}

Result<std::optional<ExpertSource::ReadyExpert>> ExpertStore::next_ready() {
  if (!options_.overlaps) wait_until([&] { return !scheduler_.is_reading_wanted(); });
  while (true) {
    if (error_) return *error_;
    if (const auto ready = scheduler_.next_ready()) {
      const ExpertKey key{layer_, ready->expert};
      return std::optional<ReadyExpert>(
          {ready->expert, view_of(formats_[stored(key).format], memory_of(ready->slot)), ready->slot});
    }
    if (scheduler_.has_served_all()) return std::optional<ReadyExpert>();
    wait_until([&] { return scheduler_.is_one_ready(); });
  }
}

// Returns when is_over() holds or the fetch has failed. Completions of guesses do not reset the patience: a
// drive that completes only those counts as failed.
void ExpertStore::wait_until(FunctionRef<bool()> is_over) {
  pump(std::chrono::nanoseconds(0));
  if (error_ || is_over()) return;
  const Clock::time_point began = Clock::now();
  Clock::time_point ended = began, answered = began;
  bool has_stalled = false;
  while (!error_ && !is_over() && !has_stalled) {
    const std::uint64_t before = wanted_ended_;
    pump(answered + options_.patience - ended);
    ended = Clock::now();
    if (wanted_ended_ != before) answered = ended;
    has_stalled = ended - answered >= options_.patience || reads_in_flight_ == 0;
  }
  waiting_ += ended - began;
  if (options_.trace != nullptr)
    options_.trace->add(
        {.name = "wait", .track = TraceTrack::wait, .layer = layer_.index(), .begin = began, .end = ended});
  if (error_ || !has_stalled || is_over()) return;
  const std::optional<ExpertKey> waits_for = scheduler_.pending();
  MF_REQUIRE(waits_for, "a fetch that waits has a pending expert");
  error_ = failure(*waits_for, Error(ErrorCode::io_failed,
                                     fmt::format("'{}': no answer from the drive for {} s",
                                                 drive_->path(stored(*waits_for).file).native(),
                                                 std::chrono::duration<double>(options_.patience).count())));
}

void ExpertStore::stop() {
  scheduler_.end_fetch();
  error_.reset();
  publish();
}

void ExpertStore::release(std::uint32_t slot) { scheduler_.release(slot); }

void ExpertStore::hint(LayerId layer, std::span<const std::uint32_t> experts, float confidence) {
  scheduler_.hint(layer, experts, confidence);
}

void ExpertStore::forget_hints() {
  scheduler_.forget_hints();
  publish();
}

void ExpertStore::advance_reads() { pump(std::chrono::nanoseconds(0)); }

// Publishes the statistics, except during a fetch. A sweep may turn a hit of its own into a miss, and a
// reader must never see a counter decrease.
void ExpertStore::publish() {
  if (!scheduler_.is_fetching()) published_.publish(statistics());
}

ExpertStatistics ExpertStore::statistics() const {
  ExpertStatistics statistics = scheduler_.statistics();
  statistics.waiting = waiting_;
  statistics.reading = rate_.busy(now());
  return statistics;
}

// ---- Reads ----

// Collects completions, waiting at most `longest_wait` for the first, and submits the next reads.
void ExpertStore::pump(std::chrono::nanoseconds longest_wait) {
  std::array<DriveCompletion, kCompletionsAtOnce> completions;
  bool has_changed = false;
  while (reads_in_flight_ > 0) {
    const std::size_t count = drive_->collect(completions, longest_wait);
    for (const DriveCompletion& completion : std::span(completions).first(count)) ended(completion);
    has_changed |= count > 0;
    if (count < completions.size()) break;
    longest_wait = std::chrono::nanoseconds(0);
  }
  has_changed |= submit_reads();
  if (has_changed) publish();
}

// Returns whether there was one to submit.
bool ExpertStore::submit_reads() {
  scheduler_.set_guess_window_bytes(guess_window_bytes(rate_));
  bool has_submitted = false;
  while (reads_in_flight_ < reads_.size()) {
    const std::optional<PieceRead> read = scheduler_.next_read();
    if (!read) break;
    const std::uint32_t index = first_free_read_;
    first_free_read_ = reads_[index].next_free;
    ++reads_in_flight_;
    reads_[index].tag = read->tag;
    reads_[index].done_bytes = 0;
    rate_.submitted(now(), read->bytes);
    if (options_.trace != nullptr && read->offset == 0) slot_began_[read->slot] = Clock::now();
    submit(index);
    has_submitted = true;
  }
  if (has_submitted) drive_->flush();
  return has_submitted;
}

// Submits the rest of a read.
void ExpertStore::submit(std::uint32_t index) {
  const PieceRead read = scheduler_.piece_of(reads_[index].tag);
  const std::uint64_t done = reads_[index].done_bytes;
  const Stored& record = stored(read.record);
  drive_->submit({index, record.file, record.offset + read.offset + done,
                  memory_of(read.slot).subspan(read.offset + done, read.bytes - done)});
}

void ExpertStore::ended(const DriveCompletion& completion) {
  const auto index = static_cast<std::uint32_t>(completion.tag);
  InFlight& in_flight = reads_[index];
  const PieceRead read = scheduler_.piece_of(in_flight.tag);
  Status status = check_bytes(in_flight, completion);
  if (status) {
    in_flight.done_bytes += completion.bytes;
    if (in_flight.done_bytes < read.bytes) {  // a short read continues where it ended
      submit(index);
      drive_->flush();
      return;
    }
    if (scheduler_.completes_record(in_flight.tag)) status = check_record(in_flight.tag);
    if (options_.trace != nullptr && scheduler_.completes_record(in_flight.tag)) trace_read(in_flight.tag);
  }
  const bool succeeded = status.has_value(), is_wanted = scheduler_.is_wanted(in_flight.tag);
  if (!succeeded && is_wanted && !error_) error_ = failure(read.record, std::move(status).error());
  if (is_wanted) ++wanted_ended_;
  rate_.completed(now(), read.bytes);
  scheduler_.complete(in_flight.tag, succeeded);
  in_flight.next_free = first_free_read_;
  first_free_read_ = index;
  --reads_in_flight_;
}

Status ExpertStore::check_bytes(const InFlight& in_flight, const DriveCompletion& completion) const {
  const PieceRead read = scheduler_.piece_of(in_flight.tag);
  const Stored& record = stored(read.record);
  const std::string& path = drive_->path(record.file).native();
  const std::uint64_t offset = record.offset + read.offset + in_flight.done_bytes;
  if (completion.error_number != 0)
    return Error(
        ErrorCode::io_failed,
        system_error(completion.error_number, fmt::format("cannot read '{}' at offset {}", path, offset))
            .message());
  const std::uint64_t wanted = read.bytes - in_flight.done_bytes;
  if (completion.bytes < wanted && (completion.bytes == 0 || completion.bytes % kSectorBytes != 0))
    return Error(
        ErrorCode::io_failed,
        fmt::format("'{}': expected {} more bytes at offset {}, found the end: the file has been cut off",
                    path, wanted - completion.bytes, offset + completion.bytes));
  return {};
}

// Verifies a record that has been read completely. If its file has changed since it was opened, the checksum
// is compared even if verifies_reads is off.
Status ExpertStore::check_record(std::uint64_t tag) const {
  const PieceRead read = scheduler_.piece_of(tag);
  const Stored& record = stored(read.record);
  const Result<FileStamp> stamp = drive_->stamp(record.file);
  const bool is_changed = !stamp || *stamp != stamps_[record.file];
  if (!options_.verifies_reads && !is_changed) return {};
  const std::uint64_t found = checksum_of(memory_of(read.slot));
  if (found == record.checksum) return {};
  return Error(ErrorCode::io_failed,
               fmt::format("'{}' at offset {}: expected a record with checksum {:016x}, found {:016x}{}",
                           drive_->path(record.file).native(), record.offset, record.checksum, found,
                           is_changed ? "; the file has changed since it was opened" : ""));
}

Error ExpertStore::failure(ExpertKey record, Error cause) const {
  return std::move(cause).during(
      fmt::format("reading expert {} of layer {}", record.expert.index(), record.layer.index()));
}

void ExpertStore::trace_read(std::uint64_t tag) {
  const PieceRead read = scheduler_.piece_of(tag);
  options_.trace->add({.name = "read",
                       .track = TraceTrack::read,
                       .is_speculative = read.is_speculative,
                       .layer = read.record.layer.index(),
                       .expert = read.record.expert.index(),
                       .bytes = memory_of(read.slot).size(),
                       .begin = slot_began_[read.slot],
                       .end = Clock::now()});
}

}  // namespace moeflux
