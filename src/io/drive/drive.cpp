#include "io/drive/drive.h"

#include <fmt/format.h>

#include <charconv>
#include <optional>
#include <utility>

#include "base/arithmetic.h"
#include "base/printable.h"
#include "base/sizes.h"
#include "io/drive/drive_files.h"
#include "io/drive/pread_drive.h"
#include "io/drive/simulated_drive.h"
#include "io/drive/uring_drive.h"

namespace moeflux {
namespace {

constexpr std::uint32_t kMaxDepth = 4096;
constexpr unsigned kMaxThreads = 1024;
constexpr std::uint64_t kMaxLatencyNs = 60'000'000'000;

Error invalid_drive(std::string_view text, std::string_view problem) {
  return {ErrorCode::invalid_argument,
          fmt::format("drive '{}': {}; expected uring, pread, buffered or sim:SIZE,TIME, as in sim:3G,100us",
                      printable(text), problem)};
}

// Parses digits and a unit, as in "100us", up to one minute.
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
  if (unit_ns == 0 || !ns || *ns > kMaxLatencyNs) return std::nullopt;
  return std::chrono::nanoseconds(*ns);
}

Result<SimulatedDriveSpeed> parse_speed(std::string_view text, std::string_view speed) {
  const std::size_t comma = speed.find(',');
  if (comma == std::string_view::npos) return invalid_drive(text, "the latency is missing");
  const Result<std::uint64_t> bytes_per_second = parse_size(speed.substr(0, comma));
  if (!bytes_per_second) {
    return invalid_drive(
        text, fmt::format("the bandwidth '{}' is not a SIZE per second", printable(speed.substr(0, comma))));
  }
  if (*bytes_per_second == 0) return invalid_drive(text, "the bandwidth is 0");
  const auto latency = parse_latency(speed.substr(comma + 1));
  if (!latency) {
    return invalid_drive(
        text, fmt::format("the latency '{}' is not a time in ns, us, ms or s of at most one minute",
                          printable(speed.substr(comma + 1))));
  }
  return SimulatedDriveSpeed{*bytes_per_second, *latency};
}

Status check_options(std::span<const std::filesystem::path> paths, const DriveOptions& options) {
  const auto refuse = [](std::string message) {
    return Error{ErrorCode::invalid_argument, std::move(message)};
  };
  if (paths.empty()) return refuse("cannot open a drive: expected at least 1 file, found 0");
  if (options.depth < 1 || options.depth > kMaxDepth) {
    return refuse(fmt::format("cannot open a drive: expected a queue depth from 1 to {}, found {}", kMaxDepth,
                              options.depth));
  }
  if (options.threads < 1 || options.threads > kMaxThreads) {
    return refuse(
        fmt::format("cannot open a drive: expected 1 to {} threads, found {}", kMaxThreads, options.threads));
  }
  const SimulatedDriveSpeed& speed = options.choice.simulated;
  if (options.choice.kind == DriveKind::sim && (speed.bytes_per_second == 0 || speed.latency.count() < 0)) {
    return refuse(fmt::format(
        "cannot open a simulated drive: expected at least 1 byte per second and a latency of at least "
        "0 ns, found {} and {} ns",
        speed.bytes_per_second, speed.latency.count()));
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
  if (text == "sim") return invalid_drive(text, "the bandwidth and latency are missing");
  if (!text.starts_with(kSimulated)) return invalid_drive(text, "unknown drive");
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
    opened.refusals.push_back(fmt::format("the system started only {} of {} threads; reading with those",
                                          drive->threads(), options.threads));
  }
  opened.drive = std::move(drive);
  return opened;
}

}  // namespace moeflux
