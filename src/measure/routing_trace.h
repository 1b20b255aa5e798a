#pragma once
// Which experts a model visited, row by row, on disk: docs/formats/routing.md.
//
// RoutingRecorder makes a trace while a model runs, TraceRouting plays one, so that caches and drives are
// compared on the same demand. Reading believes nothing: an error names the file, the line, what was expected
// and what was found. Plain values and pure functions are for any thread; a Routing is used by one step at a
// time, as the engine does.

#include <cstdint>
#include <filesystem>
#include <span>
#include <string_view>
#include <vector>

#include "base/ids.h"
#include "base/result.h"
#include "base/sizes.h"
#include "io/file_system.h"
#include "layers/routing.h"
#include "measure/routing.h"

namespace moeflux {

inline constexpr std::uint64_t kMaxRoutingTraceBytes = 256 * kMiB;

struct RoutingTrace {
  RoutingShape shape;
  std::uint64_t rows = 0;
  // [rows][routed layers][experts_per_token], ascending in a row and layer; kMaxExperts ids fit in 16 bits.
  std::vector<std::uint16_t> experts = {};
  friend bool operator==(const RoutingTrace&, const RoutingTrace&) = default;
};

// A trace that is returned has at least one row, and every row has the same layers. `file` is for messages.
// Memory: at most twice the size of the text.
Result<RoutingTrace> parse_routing_trace(std::string_view text, const std::filesystem::path& file);

// A file of more than kMaxRoutingTraceBytes is unsupported.
Result<RoutingTrace> read_routing_trace(FileSystem& files, const std::filesystem::path& path);

// The file appears whole or not at all. A trace without rows is invalid_argument.
Status write_routing_trace(FileSystem& files, const std::filesystem::path& path, const RoutingTrace& trace);

// A trace of another shape of model is invalid_argument; the message has both shapes.
Status require_fit(const RoutingTrace& trace, const RoutingShape& model);

// Plays a trace that fits the model: row by row in every layer, and from the beginning again after the last
// one.
class TraceRouting final : public Routing {
 public:
  explicit TraceRouting(RoutingTrace trace);
  void choose(LayerId layer, std::uint32_t experts, std::uint32_t experts_per_token,
              std::span<std::uint32_t> chosen, std::span<float> weights) override;

 private:
  const RoutingTrace trace_;
  std::vector<std::uint64_t> next_row_;  // [routed layers]
};

// Leaves the router's choices and keeps them: at most `max_rows` rows, and no more than surely fit in a file
// of kMaxRoutingTraceBytes. It takes all memory at once; later rows are counted and forgotten. Rows are those
// of all steps in their order; a step that fails may have recorded its rows in some layers and not in others,
// and those of later steps no longer fit together.
class RoutingRecorder final : public Routing {
 public:
  RoutingRecorder(RoutingShape shape, std::uint64_t max_rows);
  void choose(LayerId layer, std::uint32_t experts, std::uint32_t experts_per_token,
              std::span<std::uint32_t> chosen, std::span<float> weights) override;

  // Rows that every layer has seen, and those of the last layer that there was no room for.
  std::uint64_t rows() const;
  std::uint64_t forgotten_rows() const;

  // What was recorded: the rows that every layer has seen.
  RoutingTrace trace() const;
  Status write(FileSystem& files, const std::filesystem::path& path) const;

 private:
  const RoutingShape shape_;
  const std::uint64_t max_rows_;
  std::vector<std::uint64_t> seen_rows_;  // [routed layers]
  std::vector<std::uint16_t> experts_;    // as RoutingTrace's, of max_rows_ rows
};

}  // namespace moeflux
