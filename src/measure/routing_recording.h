#pragma once
// A recording of the experts that a model visited, row by row: docs/formats/routing.md.
//
// RoutingRecorder makes a recording while a model runs and RecordedRouting plays one, so that caches and
// drives can be compared on the same demand. Parsing trusts nothing: an error states file, line, expected and
// found. Plain values and pure functions: any thread. One step at a time uses a RoutingOverride, as the
// engine does.

#include <cstdint>
#include <filesystem>
#include <span>
#include <string_view>
#include <vector>

#include "base/ids.h"
#include "base/result.h"
#include "base/sizes.h"
#include "io/file_system.h"
#include "layers/routing_override.h"
#include "measure/routing_source.h"

namespace moeflux {

inline constexpr std::uint64_t kMaxRoutingRecordingBytes = 256 * kMiB;

struct RoutingRecording {
  RoutingShape shape;
  std::uint64_t rows = 0;
  // [rows][routed layers][experts_per_token], ascending in a row and layer; kMaxExperts ids fit in 16 bits.
  std::vector<std::uint16_t> experts = {};
  friend bool operator==(const RoutingRecording&, const RoutingRecording&) = default;
};

// Parses a recording. The result has at least one row, and every row has the same layers. `file` is for
// messages. Memory: at most twice the size of the text.
Result<RoutingRecording> parse_routing_recording(std::string_view text, const std::filesystem::path& file);

// A file above kMaxRoutingRecordingBytes is unsupported.
Result<RoutingRecording> read_routing_recording(FileSystem& files, const std::filesystem::path& path);

// Writes a file that appears whole or not at all. A recording without rows is invalid_argument.
Status write_routing_recording(FileSystem& files, const std::filesystem::path& path,
                               const RoutingRecording& recording);

// A recording of a model with another shape is invalid_argument; the message states both shapes.
Status require_fit(const RoutingRecording& recording, const RoutingShape& model);

// Plays a recording that fits the model: row by row in every layer, and from the start again after the last
// row.
class RecordedRouting final : public RoutingOverride {
 public:
  explicit RecordedRouting(RoutingRecording recording);
  void choose(LayerId layer, std::uint32_t experts, std::uint32_t experts_per_token,
              std::span<std::uint32_t> chosen, std::span<float> weights) override;

 private:
  const RoutingRecording recording_;
  std::vector<std::uint64_t> next_row_;  // [routed layers]
};

// Records the router's choices without changing them: at most `max_rows` rows, and no more than are sure to
// fit in a file of kMaxRoutingRecordingBytes. Allocates all memory in the constructor; later rows are counted
// and dropped. Rows of all steps are in their order. A step that fails may have recorded its rows in some
// layers only; the rows of later steps are then misaligned.
class RoutingRecorder final : public RoutingOverride {
 public:
  RoutingRecorder(RoutingShape shape, std::uint64_t max_rows);
  void choose(LayerId layer, std::uint32_t experts, std::uint32_t experts_per_token,
              std::span<std::uint32_t> chosen, std::span<float> weights) override;

  // Rows seen by every layer, and rows of the last layer that were dropped.
  std::uint64_t rows() const;
  std::uint64_t dropped_rows() const;

  // The recording of the rows that every layer has seen.
  RoutingRecording recording() const;
  Status write(FileSystem& files, const std::filesystem::path& path) const;

 private:
  const RoutingShape shape_;
  const std::uint64_t max_rows_;
  std::vector<std::uint64_t> seen_rows_;  // [routed layers]
  std::vector<std::uint16_t> experts_;    // as in RoutingRecording, for max_rows_ rows
};

}  // namespace moeflux
