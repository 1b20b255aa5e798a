#pragma once
// The previous entries, oldest first, and the file that keeps them between runs.
//
// Bounded in entries and bytes; the oldest are dropped. Empty entries, repetitions of the last entry, and
// entries above kMaxHistoryEntryBytes are not kept. The file has one entry per line, with a newline written
// as "\n" and a backslash doubled; only its owner can read it (mode 0600). A damaged file loses at most its
// damaged entries. One thread at a time.

#include <cstddef>
#include <deque>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>

#include "base/result.h"

namespace moeflux::cli {

constexpr std::size_t kMaxHistoryEntryBytes = std::size_t{1} << 20;
constexpr std::size_t kMaxHistoryBytes = std::size_t{8} << 20;

class History {
 public:
  explicit History(std::size_t max_entries = 1000) : max_entries_(max_entries) {}

  // Adds any bytes; they are made valid text (clean_text).
  void add(std::string_view entry);
  const std::deque<std::string>& entries() const { return entries_; }

  // Adds the entries of the file. A missing file has none. If the file is too long, only its end is read.
  Status load(const std::filesystem::path& path);
  // Replaces the file's content with all entries.
  Status save(const std::filesystem::path& path) const;

 private:
  std::size_t max_entries_;
  std::size_t bytes_ = 0;
  std::deque<std::string> entries_;
};

// Steps through a history, beginning at a draft that is not part of it. Requires: the History outlives it and
// does not change meanwhile.
class HistoryWalk {
 public:
  explicit HistoryWalk(const History& history) : history_(&history), at_(history.entries().size()) {}

  // The previous entry; nullopt at the oldest. At the draft, `current` is saved and newer() returns it later.
  std::optional<std::string_view> older(std::string_view current);
  // The next entry, or the draft after the newest entry; nullopt at the draft.
  std::optional<std::string_view> newer();

 private:
  const History* history_;
  std::size_t at_;  // entries().size(): the draft
  std::string draft_;
};

}  // namespace moeflux::cli
