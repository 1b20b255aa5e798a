#include "measure/drive_probe.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <random>
#include <vector>

#include "base/memory/aligned_buffer.h"
#include "base/sizes.h"
#include "experts/scheduler.h"
#include "io/system_error.h"

namespace moeflux {
namespace {

struct Piece {
  std::uint32_t file;
  std::uint64_t offset, bytes;
};

constexpr std::uint64_t kPieceBytes = SchedulerOptions().piece_bytes;  // as the expert store reads

// Pieces of randomly chosen records, `bytes` in all.
std::vector<Piece> draw_pieces(const PackedModel& model, std::uint64_t bytes, std::uint64_t seed) {
  std::mt19937_64 random(seed);
  const std::vector<ExpertFile>& files = model.manifest().experts;
  std::vector<Piece> pieces;
  for (std::uint64_t drawn = 0; drawn < bytes;) {
    const auto file = static_cast<std::uint32_t>(random() % files.size());
    const ExpertRecord& record = files[file].records[random() % files[file].records.size()];
    for (std::uint64_t at = 0; at < record.bytes; at += kPieceBytes)
      pieces.push_back({file, record.offset + at, std::min(kPieceBytes, record.bytes - at)});
    drawn += record.bytes;
  }
  return pieces;
}

}  // namespace

Result<DriveProbe> probe_drive(const PackedModel& model, const DriveChoice& choice, std::uint64_t bytes,
                               std::uint64_t seed) {
  if (model.manifest().experts.empty())
    return Error(ErrorCode::invalid_argument, "the model has no experts to be read");
  std::vector<std::filesystem::path> paths;
  for (const ExpertFile& file : model.manifest().experts) paths.push_back(model.path() / file.file);
  DriveOptions options;
  options.choice = choice;
  MF_TRY(AlignedBuffer memory, AlignedBuffer::create(options.depth * kPieceBytes));
  options.memory = {memory.bytes()};
  MF_TRY(const OpenedDrive opened, open_drive(paths, options));
  Drive& drive = *opened.drive;

  const std::vector<Piece> pieces = draw_pieces(model, bytes, seed);
  std::vector<std::uint32_t> free_places;
  for (std::uint32_t i = 0; i < drive.depth(); ++i) free_places.push_back(i);
  std::array<DriveCompletion, 64> completions;
  DriveProbe probe;
  std::size_t next = 0, ended = 0;
  const auto began = std::chrono::steady_clock::now();
  while (ended < pieces.size()) {
    while (next < pieces.size() && !free_places.empty()) {
      const Piece& piece = pieces[next++];
      const std::uint32_t place = free_places.back();
      free_places.pop_back();
      drive.submit(
          {place, piece.file, piece.offset, memory.bytes().subspan(place * kPieceBytes, piece.bytes)});
    }
    drive.flush();
    const std::size_t count = drive.collect(completions, std::chrono::seconds(10));
    if (count == 0) return Error(ErrorCode::io_failed, "no answer from the drive for 10 s");
    for (const DriveCompletion& completion : std::span(completions).first(count)) {
      if (completion.error_number != 0) return system_error(completion.error_number, "cannot read experts");
      probe.bytes += completion.bytes;
      free_places.push_back(static_cast<std::uint32_t>(completion.tag));
    }
    ended += count;
  }
  const std::chrono::duration<double> took = std::chrono::steady_clock::now() - began;
  probe.bytes_per_second = static_cast<double>(probe.bytes) / took.count();
  probe.drive = drive.describe();
  return probe;
}

}  // namespace moeflux
