#pragma once
// Utf8Stream turns a stream of bytes into whole characters.
//
// A model writes bytes, sometimes part of a character at a time. The stream outputs complete characters and
// holds back at most 3 bytes, the beginning of the next one. Invalid bytes become U+FFFD as in
// text/unicode/utf8.h. The concatenated output equals append_lossy() of all bytes, however the bytes are
// split over calls of push(). One thread at a time.

#include <array>
#include <cstddef>
#include <string>
#include <string_view>

namespace moeflux {

class Utf8Stream {
 public:
  // Appends the characters that `bytes` completes to `text`.
  void push(std::string_view bytes, std::string& text);

  // Ends the bytes: an incomplete character becomes U+FFFD. Afterwards the stream is as new.
  void finish(std::string& text);

  // The number of bytes of an incomplete character: 0 to 3.
  std::size_t held_back() const { return held_; }

 private:
  std::array<char, 4> begun_{};
  std::size_t held_ = 0;
};

}  // namespace moeflux
