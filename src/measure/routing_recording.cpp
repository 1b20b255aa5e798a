#include "measure/routing_recording.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <iterator>
#include <memory>
#include <string>
#include <utility>

#include "base/check.h"
#include "base/printable.h"
#include "io/atomic_file.h"

namespace moeflux {
namespace {

constexpr std::string_view kFirstWords = "moeflux routing ";
constexpr std::uint64_t kVersion = 1;
constexpr std::size_t kWriteBytes = 64 * kKiB;
constexpr std::size_t kQuotedBytes = 40;
static_assert(kMaxExperts <= std::uint32_t{1} << 16, "an id fits in RoutingRecording::experts");

// Reads the lines of a text and the numbers in them; every error states the place.
class RecordingLines {
 public:
  RecordingLines(std::string_view text, const std::filesystem::path& file) : text_(text), file_(file) {}

  bool at_end() const { return text_.empty(); }

  // Goes to the next line. Each must end in '\n', which detects a truncated file even between two digits.
  Status next_line(std::string_view expected) {
    ++line_number_;
    line_ = text_.substr(0, text_.find('\n'));
    if (text_.empty()) return wrong(expected, "the end of the file");
    if (line_.size() == text_.size())
      return wrong("a line that ends", fmt::format("the end of the file after '{}'", quoted()));
    text_.remove_prefix(line_.size() + 1);
    return {};
  }

  // The next number of the line. Numbers are separated by one space and have no sign and no leading zeros.
  Result<std::uint64_t> number(std::string_view expected) {
    if (line_.empty()) return wrong(expected, "the end of the line");
    std::uint64_t value = 0;
    const char* const end = line_.data() + line_.size();
    const auto [rest, error] = std::from_chars(line_.data(), end, value);
    const auto digits = static_cast<std::size_t>(rest - line_.data());
    if (error != std::errc() || (digits > 1 && line_.front() == '0')) return wrong_here(expected);
    if (rest == end) {
      line_ = {};
    } else {
      if (*rest != ' ' || rest + 1 == end)
        return wrong("one space between numbers and none behind them", fmt::format("'{}'", quoted()));
      line_.remove_prefix(digits + 1);
    }
    return value;
  }

  Result<std::uint32_t> number(std::string_view name, std::uint64_t least, std::uint64_t largest) {
    MF_TRY(const std::uint64_t value, number(name));
    if (value >= least && value <= largest) return static_cast<std::uint32_t>(value);
    return wrong(fmt::format("{} from {} to {}", name, least, largest), fmt::format("{}", value));
  }

  Status end_of_line() const {
    if (line_.empty()) return {};
    return wrong("the end of the line", fmt::format("'{}'", quoted()));
  }

  Status words(std::string_view words) {
    if (!line_.starts_with(words)) return wrong_here(fmt::format("'{}'", words));
    line_.remove_prefix(words.size());
    return {};
  }

  Error wrong(std::string_view expected, std::string_view found,
              ErrorCode code = ErrorCode::corrupt_data) const {
    return {code, fmt::format("'{}', line {}: expected {}, found {}", file_.native(), line_number_, expected,
                              found)};
  }

 private:
  Error wrong_here(std::string_view expected) const { return wrong(expected, fmt::format("'{}'", quoted())); }
  std::string quoted() const { return printable(line_, kQuotedBytes); }

  std::string_view text_;  // after the current line
  std::string_view line_;  // the rest of the current line
  const std::filesystem::path& file_;
  std::uint64_t line_number_ = 0;
};

Result<RoutingShape> parse_first_line(RecordingLines& lines) {
  MF_TRY_STATUS(lines.next_line("'moeflux routing 1 LAYERS EXPERTS PER_TOKEN'"));
  MF_TRY_STATUS(lines.words(kFirstWords));
  MF_TRY(const std::uint64_t version, lines.number("the version of the format"));
  if (version != kVersion)
    return lines.wrong(fmt::format("version {}", kVersion), fmt::format("{}", version),
                       ErrorCode::unsupported);
  RoutingShape shape;
  MF_TRY(shape.layers, lines.number("layers", 1, kMaxLayers));
  MF_TRY(shape.experts, lines.number("experts", 1, kMaxExperts));
  MF_TRY(shape.experts_per_token, lines.number("experts per token", 1, shape.experts));
  MF_TRY_STATUS(lines.end_of_line());
  return shape;
}

// Reads the lines after the first. Row 0 determines which layers have a router; every later row has the same.
class RowReader {
 public:
  RowReader(RecordingLines& lines, RoutingRecording& recording) : lines_(lines), recording_(recording) {}

  Status read_line() {
    MF_TRY_STATUS(lines_.next_line("'ROW LAYER EXPERT...'"));
    MF_TRY_STATUS(read_row());
    MF_TRY_STATUS(row_ == 0 ? read_new_layer() : read_known_layer());
    ++layers_read_;
    return read_experts();
  }

  Status finish() {
    if (layers_read_ == recording_.shape.routed.size()) {
      recording_.rows = row_ + 1;
      return {};
    }
    return lines_.next_line(fmt::format("row {}, layer {}", row_, next_layer()));
  }

 private:
  Status read_row() {
    MF_TRY(const std::uint64_t row, lines_.number("the number of a row"));
    const bool is_complete = layers_read_ == recording_.shape.routed.size() && layers_read_ > 0;
    if (row_ == 0 ? row == 1 && is_complete : is_complete) {
      ++row_;
      layers_read_ = 0;
    }
    if (row == row_) return {};
    return lines_.wrong(row_ == 0 && is_complete ? "row 0 or 1" : fmt::format("row {}", row_),
                        fmt::format("{}", row));
  }

  Status read_new_layer() {
    std::vector<LayerId>& routed = recording_.shape.routed;
    const std::uint32_t least = routed.empty() ? 0 : routed.back().index() + 1;
    if (least == recording_.shape.layers)
      return lines_.wrong(fmt::format("row 1, as the last of {} layers was there", recording_.shape.layers),
                          "row 0");
    MF_TRY(const std::uint32_t layer, lines_.number("a layer", least, recording_.shape.layers - 1));
    routed.emplace_back(layer);
    return {};
  }

  Status read_known_layer() {
    MF_TRY(const std::uint64_t layer, lines_.number("the number of a layer"));
    if (layer == next_layer()) return {};
    return lines_.wrong(fmt::format("layer {}, as in row 0", next_layer()), fmt::format("{}", layer));
  }

  Status read_experts() {
    const RoutingShape& shape = recording_.shape;
    std::uint32_t least = 0;
    for (std::uint32_t k = 0; k < shape.experts_per_token; ++k) {
      if (least == shape.experts)
        return lines_.wrong(fmt::format("{} ascending experts", shape.experts_per_token),
                            fmt::format("{}, the last of them, as number {}", least - 1, k));
      MF_TRY(const std::uint32_t expert, lines_.number("an ascending expert", least, shape.experts - 1));
      recording_.experts.push_back(static_cast<std::uint16_t>(expert));
      least = expert + 1;
    }
    return lines_.end_of_line();
  }

  std::uint32_t next_layer() const { return recording_.shape.routed[layers_read_].index(); }

  RecordingLines& lines_;
  RoutingRecording& recording_;
  std::uint64_t row_ = 0;
  std::size_t layers_read_ = 0;  // in this row
};

std::size_t numbers_a_row(const RoutingShape& shape) {
  return shape.routed.size() * std::size_t{shape.experts_per_token};
}

// The number of rows that are sure to fit in a file that can be read again: every line at its longest, with
// row numbers of 10 digits.
std::uint64_t rows_that_fit(const RoutingShape& shape) {
  constexpr std::uint64_t kFirstLineBytes = 64, kRowAndLayerBytes = 10 + 1 + 4 + 1, kExpertBytes = 1 + 5;
  const std::uint64_t line_bytes = kRowAndLayerBytes + kExpertBytes * shape.experts_per_token;
  return (kMaxRoutingRecordingBytes - kFirstLineBytes) /
         (line_bytes * std::max<std::size_t>(1, shape.routed.size()));
}

// Index of `layer` among the layers with a router.
std::size_t place_of(const RoutingShape& shape, LayerId layer) {
  const auto place = std::ranges::lower_bound(shape.routed, layer);
  MF_REQUIRE(place != shape.routed.end() && *place == layer, "the layer is one that has a router");
  return static_cast<std::size_t>(place - shape.routed.begin());
}

void require_call(const RoutingShape& shape, std::uint32_t experts, std::uint32_t experts_per_token,
                  std::span<std::uint32_t> chosen, std::span<float> weights) {
  MF_REQUIRE(experts == shape.experts && experts_per_token == shape.experts_per_token,
             "the model has the shape of the recording");
  MF_REQUIRE(chosen.size() % experts_per_token == 0 && weights.size() == chosen.size(), "rows are whole");
}

}  // namespace

Result<RoutingRecording> parse_routing_recording(std::string_view text, const std::filesystem::path& file) {
  RecordingLines lines(text, file);
  RoutingRecording recording;
  MF_TRY(recording.shape, parse_first_line(lines));
  RowReader rows(lines, recording);
  MF_TRY_STATUS(rows.read_line());
  while (!lines.at_end()) MF_TRY_STATUS(rows.read_line());
  MF_TRY_STATUS(rows.finish());
  return recording;
}

Result<RoutingRecording> read_routing_recording(FileSystem& files, const std::filesystem::path& path) {
  MF_TRY(const std::string text, files.read_text(path, kMaxRoutingRecordingBytes));
  return parse_routing_recording(text, path);
}

Status write_routing_recording(FileSystem& files, const std::filesystem::path& path,
                               const RoutingRecording& recording) {
  const RoutingShape& shape = recording.shape;
  MF_REQUIRE(recording.experts.size() == recording.rows * numbers_a_row(shape),
             "a recording has the experts of its rows");
  if (recording.experts.empty())
    return Error{ErrorCode::invalid_argument,
                 fmt::format("writing '{}': there is no row to write; run the model first", path.native())};
  MF_TRY(const std::unique_ptr<AtomicFile> file, AtomicFile::begin(files, path));
  std::string text = fmt::format("{}{} {} {} {}\n", kFirstWords, kVersion, shape.layers, shape.experts,
                                 shape.experts_per_token);
  auto expert = recording.experts.begin();
  for (std::uint64_t row = 0; row < recording.rows; ++row) {
    for (const LayerId layer : shape.routed) {
      fmt::format_to(std::back_inserter(text), "{} {}", row, layer.index());
      for (std::uint32_t k = 0; k < shape.experts_per_token; ++k)
        fmt::format_to(std::back_inserter(text), " {}", *expert++);
      text += '\n';
    }
    if (text.size() < kWriteBytes && row + 1 < recording.rows) continue;
    MF_TRY_STATUS(file->append(std::as_bytes(std::span(text))));
    text.clear();
  }
  return file->commit();
}

Status require_fit(const RoutingRecording& recording, const RoutingShape& model) {
  if (recording.shape == model) return {};
  std::string other_layers;
  if (to_text(recording.shape) == to_text(model)) other_layers = "; the experts are in other layers";
  return Error{ErrorCode::invalid_argument,
               fmt::format("a routing recording of another model: expected {}, found {}{}", to_text(model),
                           to_text(recording.shape), other_layers)};
}

RecordedRouting::RecordedRouting(RoutingRecording recording)
    : recording_(std::move(recording)), next_row_(recording_.shape.routed.size()) {
  MF_REQUIRE(recording_.rows > 0, "a recording that is played has rows");
  MF_REQUIRE(recording_.experts.size() == recording_.rows * numbers_a_row(recording_.shape),
             "a recording has the experts of its rows");
}

void RecordedRouting::choose(LayerId layer, std::uint32_t experts, std::uint32_t experts_per_token,
                             std::span<std::uint32_t> chosen, std::span<float> weights) {
  require_call(recording_.shape, experts, experts_per_token, chosen, weights);
  const std::size_t place = place_of(recording_.shape, layer);
  std::uint64_t& row = next_row_[place];
  for (std::size_t at = 0; at < chosen.size(); at += experts_per_token) {
    const auto recorded =
        std::span(recording_.experts)
            .subspan(row * numbers_a_row(recording_.shape) + place * experts_per_token, experts_per_token);
    std::ranges::copy(recorded, chosen.begin() + static_cast<std::ptrdiff_t>(at));
    row = row + 1 == recording_.rows ? 0 : row + 1;
  }
}

RoutingRecorder::RoutingRecorder(RoutingShape shape, std::uint64_t max_rows)
    : shape_(std::move(shape)),
      max_rows_(std::min(max_rows, rows_that_fit(shape_))),
      seen_rows_(shape_.routed.size()),
      experts_(max_rows_ * numbers_a_row(shape_)) {}

void RoutingRecorder::choose(LayerId layer, std::uint32_t experts, std::uint32_t experts_per_token,
                             std::span<std::uint32_t> chosen, std::span<float> weights) {
  require_call(shape_, experts, experts_per_token, chosen, weights);
  const std::size_t place = place_of(shape_, layer);
  for (std::size_t at = 0; at < chosen.size(); at += experts_per_token) {
    const std::uint64_t row = seen_rows_[place]++;
    if (row >= max_rows_) continue;
    std::uint32_t least = 0;
    std::size_t to = row * numbers_a_row(shape_) + place * experts_per_token;
    for (const std::uint32_t expert : chosen.subspan(at, experts_per_token)) {
      MF_REQUIRE(expert >= least && expert < experts, "a row's experts are ascending and the model's");
      experts_[to++] = static_cast<std::uint16_t>(expert);
      least = expert + 1;
    }
  }
}

std::uint64_t RoutingRecorder::rows() const {
  return std::min(max_rows_, seen_rows_.empty() ? 0 : std::ranges::min(seen_rows_));
}

std::uint64_t RoutingRecorder::dropped_rows() const {
  const std::uint64_t seen = seen_rows_.empty() ? 0 : seen_rows_.back();
  return seen - std::min(seen, max_rows_);
}

RoutingRecording RoutingRecorder::recording() const {
  const auto end = experts_.begin() + static_cast<std::ptrdiff_t>(rows() * numbers_a_row(shape_));
  return {.shape = shape_, .rows = rows(), .experts = {experts_.begin(), end}};
}

Status RoutingRecorder::write(FileSystem& files, const std::filesystem::path& path) const {
  return write_routing_recording(files, path, recording());
}

}  // namespace moeflux
