#include "io/drive.h"

#include <fmt/format.h>

#include <charconv>
#include <optional>
#include <utility>

#include "base/arithmetic.h"
#include "base/printable.h"
#include "base/sizes.h"
#include "io/drive_files.h"
#include "io/pread_drive.h"
#include "io/simulated_drive.h"
#include "io/uring_drive.h"

namespace moeflux {
namespace {

constexpr std::uint32_t kLargestDepth = 4096;
constexpr unsigned kMostThreads = 1024;
constexpr std::uint64_t kLongestLatencyNs = 60'000'000'000;

Error not_a_drive(std::string_view text, std::string_view problem) {
  return {ErrorCode::invalid_argument,
          fmt::format("drive '{}': {}; expected uring, pread, buffered or sim:SIZE,TIME, as in sim:3G,100us",
                      printable(text), problem)};
}

// "100us": digits and a unit, a minute at most.
std::optional<std::chrono::nanoseconds> parse_latency(std::string_view text) {
  std::uint64_t count = 0;
  const char* const end = text.data() + text.size();
  const auto [unit_begin, problem] = std::from_chars(text.data(), end, count);
  if (problem != std::errc()) return std::nullopt;
  const std::string_view unit(unit_begin, static_cast<std::size_t>(end - unit_begin));
  std::uint64_t unit_ns = 0;
  if (unit == "ns") unit_ns = 1;
  if (unit == "us") unit_ns = 1'000;
  if (unit == "ms") unit_ns = 1'000'000;
  if (unit == "s") unit_ns = 1'000'000'000;
  const auto ns = checked_multiply(count, unit_ns);
  if (unit_ns == 0 || !ns || *ns > kLongestLatencyNs) return std::nullopt;
  return std::chrono::nanoseconds(*ns);
}

Result<SimulatedDriveSpeed> parse_speed(std::string_view text, std::string_view speed) {
  const std::size_t comma = speed.find(',');
  if (comma == std::string_view::npos) return not_a_drive(text, "has no latency");
  const Result<std::uint64_t> bytes_per_second = parse_size(speed.substr(0, comma));
  if (!bytes_per_second) {
    return not_a_drive(text, fmt::format("'{}' is no SIZE a second", printable(speed.substr(0, comma))));
  }
  if (*bytes_per_second == 0) return not_a_drive(text, "moves no bytes");
  const auto latency = parse_latency(speed.substr(comma + 1));
  if (!latency) {
    return not_a_drive(text, fmt::format("'{}' is no time in ns, us, ms or s, of a minute at most",
                                         printable(speed.substr(comma + 1))));
  }
  return SimulatedDriveSpeed{*bytes_per_second, *latency};
}

Status check_options(std::span<const std::filesystem::path> paths, const DriveOptions& options) {
  const auto refuse = [](std::string message) {
    return Error{ErrorCode::invalid_argument, std::move(message)};
  };
  if (paths.empty()) return refuse("a drive of no files: expected at least one");
  if (options.depth < 1 || options.depth > kLargestDepth) {
    return refuse(
        fmt::format("a drive of {} reads at a time: expected 1 to {}", options.depth, kLargestDepth));
  }
  if (options.threads < 1 || options.threads > kMostThreads) {
    return refuse(fmt::format("a drive of {} threads: expected 1 to {}", options.threads, kMostThreads));
  }
  if (options.choice.kind == DriveKind::sim &&
      (options.choice.simulated.bytes_per_second == 0 || options.choice.simulated.latency.count() < 0)) {
    return refuse("a simulated drive moves at least one byte a second, and its latency is not negative");
  }
  return {};
}

std::string describe_refusal(const DirectRefusal& refusal) {
  return fmt::format(
      "direct reads of '{}' are refused ({}); reading through the page cache; to allow them, keep the file "
      "on a "
      "local file system such as ext4 or xfs",
      refusal.path.native(), name_of_errno(refusal.error_number));
}

}  // namespace

std::string_view name_of(DriveKind kind) {
  switch (kind) {
    case DriveKind::uring: return "uring";
    case DriveKind::pread: return "pread";
    case DriveKind::buffered: return "buffered";
    case DriveKind::sim: return "sim";
  }
  return "unknown";
}

Result<DriveChoice> parse_drive_choice(std::string_view text) {
  for (const DriveKind kind : {DriveKind::uring, DriveKind::pread, DriveKind::buffered}) {
    if (text == name_of(kind)) return DriveChoice{.kind = kind};
  }
  constexpr std::string_view kSimulated = "sim:";
  if (text == "sim") return not_a_drive(text, "has no speed");
  if (!text.starts_with(kSimulated)) return not_a_drive(text, "is not known");
  MF_TRY(const SimulatedDriveSpeed speed, parse_speed(text, text.substr(kSimulated.size())));
  return DriveChoice{DriveKind::sim, speed};
}

Result<OpenedDrive> open_drive(std::span<const std::filesystem::path> paths, const DriveOptions& options) {
  MF_TRY_STATUS(check_options(paths, options));
  const DriveKind kind = options.choice.kind;
  const bool wants_direct = kind == DriveKind::uring || kind == DriveKind::pread;
  MF_TRY(DriveFiles files,
         DriveFiles::open(paths, wants_direct ? DriveAccess::direct : DriveAccess::page_cache));

  OpenedDrive opened;
  if (kind == DriveKind::sim) {
    opened.drive =
        std::make_unique<SimulatedDrive>(std::move(files), options.choice.simulated, options.depth);
    return opened;
  }
  if (files.direct_refusal()) opened.refusals.push_back(describe_refusal(*files.direct_refusal()));
  if (kind == DriveKind::uring && files.is_direct()) {
    opened.drive = UringDrive::open(files, options, opened.refusals);
    if (opened.drive != nullptr) return opened;
  }
  MF_TRY(std::unique_ptr<PreadDrive> drive, PreadDrive::start(std::move(files), options));
  if (drive->threads() < options.threads) {
    opened.refusals.push_back(fmt::format("the system starts {} of {} threads; reading with these",
                                          drive->threads(), options.threads));
  }
  opened.drive = std::move(drive);
  return opened;
}

}  // namespace moeflux
