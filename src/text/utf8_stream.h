#pragma once
// Bytes in, whole characters out.
//
// A model writes bytes, sometimes half a character at a time; people read characters. The stream gives out
// what is complete and holds back at most 3 bytes, the beginning of a character. Bytes that are not UTF-8
// become U+FFFD as in text/utf8.h. However the bytes are cut into pushes, the text is the same: the one that
// append_lossy() gives for all of them. One thread at a time.

#include <array>
#include <cstddef>
#include <string>
#include <string_view>

namespace moeflux {

class Utf8Stream {
 public:
  // Appends to `text` what `bytes` completes.
  void push(std::string_view bytes, std::string& text);

  // The bytes end here: a character that is incomplete becomes U+FFFD. The stream is then as new.
  void finish(std::string& text);

  // Bytes that wait for the rest of their character: 0 to 3.
  std::size_t held_back() const { return held_; }

 private:
  std::array<char, 4> begun_{};
  std::size_t held_ = 0;
};

}  // namespace moeflux
