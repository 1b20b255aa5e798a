#include "cli/terminal/line_session.h"

#include <algorithm>
#include <utility>

#include "base/utf8.h"
#include "cli/terminal/entry.h"
#include "cli/terminal/utf8.h"

namespace moeflux::cli {
namespace {

constexpr std::size_t kMaxListedCandidates = 100;

// The longest common prefix, in whole characters.
std::string common_prefix(const std::vector<std::string>& words) {
  std::string_view common = words.front();
  for (const std::string& word : words) {
    const auto differ = std::mismatch(common.begin(), common.end(), word.begin(), word.end()).first;
    common = common.substr(0, static_cast<std::size_t>(differ - common.begin()));
  }
  std::size_t end = common.size();
  const std::string_view whole = words.front();
  while (end > 0 && end < whole.size() && is_utf8_continuation(whole[end])) --end;
  return std::string(common.substr(0, end));
}

std::string listed(const std::vector<std::string>& candidates) {
  std::string list;
  const std::size_t count = std::min(candidates.size(), kMaxListedCandidates);
  for (std::size_t i = 0; i < count; ++i) list += (i == 0 ? "" : "  ") + candidates[i];
  if (count < candidates.size()) list += "  ...";
  return list;
}

}  // namespace

LineSession::LineSession(const History& history, Completer completer)
    : history_(history), completer_(std::move(completer)), walk_(history) {}

void LineSession::begin() {
  buffer_.clear();
  walk_ = HistoryWalk(history_);
  completion_ = {};
  below_.clear();
}

LineSession::Action LineSession::press(const Key& key) {
  if (key.name == KeyName::tab) {
    complete(key.shift);
    return Action::none;
  }
  completion_ = {};
  below_.clear();
  switch (key.name) {
    case KeyName::character:
      if (key.ctrl && !key.alt) return press_control(key.text[0]);
      if (key.alt)
        press_alt(key);
      else
        buffer_.insert(key.text);
      return Action::none;
    case KeyName::paste: paste(key); return Action::none;
    case KeyName::enter: return enter(key.alt || key.shift || key.ctrl);
    case KeyName::backspace:
      if (key.alt || key.ctrl)
        buffer_.kill_word_before();
      else
        buffer_.erase_before();
      return Action::none;
    case KeyName::erase:
      if (key.alt || key.ctrl)
        buffer_.kill_word_after();
      else
        buffer_.erase_after();
      return Action::none;
    default: press_arrow(key); return Action::none;
  }
}

LineSession::Action LineSession::press_control(char letter) {
  switch (letter) {
    case 'a': buffer_.home(); break;
    case 'b': buffer_.left(); break;
    case 'c':
      if (buffer_.text().empty()) return Action::interrupt;
      begin();
      return Action::clear_line;
    case 'd':
      if (buffer_.text().empty()) return Action::end_of_input;
      buffer_.erase_after();
      break;
    case 'e': buffer_.end(); break;
    case 'f': buffer_.right(); break;
    case 'k': buffer_.kill_to_line_end(); break;
    case 'l': return Action::clear_screen;
    case 'n': newer(); break;
    case 'p': older(); break;
    case 't': buffer_.transpose(); break;
    case 'u': buffer_.kill_to_line_begin(); break;
    case 'w': buffer_.kill_space_before(); break;
    case 'y': buffer_.yank(); break;
    case 'z': return Action::suspend;
    case '_': buffer_.undo(); break;
    default: break;
  }
  return Action::none;
}

void LineSession::press_alt(const Key& key) {
  switch (key.text[0]) {
    case 'b': buffer_.word_left(); break;
    case 'd': buffer_.kill_word_after(); break;
    case 'f': buffer_.word_right(); break;
    default: break;
  }
}

void LineSession::press_arrow(const Key& key) {
  const bool by_word = key.ctrl || key.alt;
  switch (key.name) {
    case KeyName::left: by_word ? buffer_.word_left() : buffer_.left(); break;
    case KeyName::right: by_word ? buffer_.word_right() : buffer_.right(); break;
    case KeyName::home: buffer_.home(); break;
    case KeyName::end: buffer_.end(); break;
    case KeyName::up: older(); break;
    case KeyName::down: newer(); break;
    default: break;  // Escape, Insert, Page Up and Page Down do nothing
  }
}

LineSession::Action LineSession::enter(bool is_newline) {
  const EntryState state = entry_state(buffer_.text());
  if (is_newline || state == EntryState::in_block) {
    buffer_.insert("\n");
    return Action::none;
  }
  if (state == EntryState::complete) return Action::submit;
  buffer_.text_end();
  buffer_.replace_before(buffer_.text().size() - 1, "\n");
  return Action::none;
}

void LineSession::paste(const Key& key) {
  if (!buffer_.insert(key.text) && !key.text.empty())
    below_ = "(the pasted text is too long and was left out)";
  else if (key.was_cut)
    below_ = "(the pasted text was too long; its end was left out)";
}

void LineSession::older() {
  if (buffer_.line_up()) return;
  if (const auto entry = walk_.older(buffer_.text())) buffer_.replace_all(*entry);
}

void LineSession::newer() {
  if (buffer_.line_down()) return;
  if (const auto entry = walk_.newer()) buffer_.replace_all(*entry);
}

// The first Tab extends the word to the common prefix of all candidates and lists them; later Tabs cycle
// through them.
void LineSession::complete(bool backwards) {
  Completion& completion = completion_;
  if (completion.candidates.empty()) return start_completion();
  const std::size_t count = completion.candidates.size();
  if (!completion.shown)
    completion.shown = backwards ? count - 1 : 0;
  else
    completion.shown = (*completion.shown + (backwards ? count - 1 : 1)) % count;
  buffer_.replace_before(completion.begin, completion.candidates[*completion.shown]);
}

void LineSession::start_completion() {
  below_.clear();
  if (!completer_) return;
  const std::string_view before = std::string_view(buffer_.text()).substr(0, buffer_.cursor());
  const std::size_t begin = before.find_last_of(" \t\n") + 1;  // npos + 1 is 0
  const std::string word(before.substr(begin));
  if (!word.starts_with('/')) return;
  std::vector<std::string> candidates;
  for (const std::string& candidate : completer_(word)) {
    std::string text = clean_text(candidate);
    if (text.starts_with(word)) candidates.push_back(std::move(text));
  }
  if (candidates.empty()) return;
  if (candidates.size() == 1) {
    buffer_.replace_before(begin, candidates.front() + ' ');
    return;
  }
  const std::string common = common_prefix(candidates);
  if (common.size() > word.size()) buffer_.replace_before(begin, common);
  below_ = listed(candidates);
  completion_ = {begin, std::move(candidates), std::nullopt};
}

}  // namespace moeflux::cli
