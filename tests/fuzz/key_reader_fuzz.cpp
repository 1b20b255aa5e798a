// Input: bytes from a terminal. The first byte selects how they are split.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/check.h"
#include "cli/terminal/history.h"
#include "cli/terminal/key_reader.h"
#include "cli/terminal/line_session.h"
#include "cli/terminal/screen_line.h"
#include "cli/terminal/utf8.h"

namespace moeflux::fuzz {
namespace {

std::vector<cli::Key> keys_of(std::string_view bytes, std::size_t piece_bytes) {
  cli::KeyReader reader;
  std::vector<cli::Key> keys;
  while (!bytes.empty()) {
    const std::string_view piece = bytes.substr(0, piece_bytes);
    reader.push(piece, keys);
    bytes.remove_prefix(piece.size());
  }
  reader.flush(keys);
  MF_REQUIRE(reader.pending() == cli::KeyReader::Pending::nothing, "nothing is pending after flush()");
  return keys;
}

void require_good(const cli::Key& key) {
  MF_REQUIRE(cli::clean_utf8(key.text) == key.text, "the text of a key is valid UTF-8");
  MF_REQUIRE(cli::clean_text(key.text) == key.text, "the text of a key has no control characters");
  if (key.name == cli::KeyName::character) {
    MF_REQUIRE(!key.text.empty() && code_point_at(key.text, 0).bytes == key.text.size(), "one character");
  } else {
    MF_REQUIRE(key.name == cli::KeyName::paste || key.text.empty(), "other keys have no text");
  }
}

void require_good(const cli::EditBuffer& buffer) {
  MF_REQUIRE(cli::clean_utf8(buffer.text()) == buffer.text(), "the text is valid UTF-8");
  std::size_t border = 0;
  while (border < buffer.cursor()) border = cli::next_border(buffer.text(), border);
  MF_REQUIRE(border == buffer.cursor(), "the cursor is on a border");
}

void press_all(const std::vector<cli::Key>& keys, std::size_t columns) {
  cli::History history;
  cli::LineSession session(history, [](std::string_view) {
    return std::vector<std::string>{"/help", "/history", "/h\u00E4"};
  });
  cli::ScreenLine screen({.columns = columns, .rows = 5});
  for (const cli::Key& key : keys) {
    require_good(key);
    if (session.press(key) == cli::LineSession::Action::submit) {
      history.add(session.buffer().text());
      session.begin();
    }
    const cli::EditBuffer& buffer = session.buffer();
    require_good(buffer);
    const cli::ScreenView view{.prompt = "> ",
                               .continuation = ". ",
                               .text = buffer.text(),
                               .cursor = buffer.cursor(),
                               .below = session.below()};
    const cli::ScreenLayout layout = cli::lay_out(view, columns);
    MF_REQUIRE(layout.cursor_row < layout.rows.size() && layout.cursor_column < columns,
               "the cursor is in a cell of the screen");
    for (const cli::ScreenRow& row : layout.rows) {
      MF_REQUIRE(row.columns <= columns, "a row is not wider than the screen");
      MF_REQUIRE(cli::clean_text(row.bytes) == row.bytes, "a row has no control characters");
    }
    (void)screen.draw(view);
  }
}

void read(std::string_view bytes) {
  if (bytes.empty()) return;
  const std::size_t choice = static_cast<unsigned char>(bytes.front());
  bytes.remove_prefix(1);
  const std::vector<cli::Key> keys = keys_of(bytes, std::max<std::size_t>(1, bytes.size()));
  MF_REQUIRE(keys == keys_of(bytes, 1), "the keys do not depend on how the bytes are split");
  MF_REQUIRE(keys == keys_of(bytes, choice % 16 + 1), "the keys do not depend on how the bytes are split");
  MF_REQUIRE(keys.size() <= 2 * bytes.size(), "a byte makes at most two keys");
  press_all(keys, choice / 16 + 1);
}

}  // namespace
}  // namespace moeflux::fuzz

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  moeflux::fuzz::read({reinterpret_cast<const char*>(data), size});
  return 0;
}
