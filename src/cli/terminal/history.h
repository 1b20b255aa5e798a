#pragma once
// What was entered before, oldest first, and the file that keeps it between runs.
//
// Bounded in entries and bytes; the oldest go. An entry that repeats the last one, an empty one, and one
// longer than kMaxHistoryEntryBytes are not kept. The file has one entry a line, with a newline written as
// "\n" and a backslash doubled; it belongs to its user alone (mode 0600). A damaged file costs at most its
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

  // Any bytes; they are made fit for a text (clean_text).
  void add(std::string_view entry);
  const std::deque<std::string>& entries() const { return entries_; }

  // Adds the entries of the file. No file is no entries. Of a file that is too long, its end counts.
  Status load(const std::filesystem::path& path);
  // Writes all entries over what the file had.
  Status save(const std::filesystem::path& path) const;

 private:
  std::size_t max_entries_;
  std::size_t bytes_ = 0;
  std::deque<std::string> entries_;
};

// A walk through a history from a draft that is not part of it. The History outlives it and does not change
// meanwhile.
class HistoryWalk {
 public:
  explicit HistoryWalk(const History& history) : history_(&history), at_(history.entries().size()) {}

  // The entry before; `current`, if it is the draft, is kept for the way back. Nothing at the oldest.
  std::optional<std::string_view> older(std::string_view current);
  // The entry after, at last the draft. Nothing where one is at the draft.
  std::optional<std::string_view> newer();

 private:
  const History* history_;
  std::size_t at_;  // entries().size(): the draft
  std::string draft_;
};

}  // namespace moeflux::cli
