// Input: bytes in pieces. The first byte of each piece is the number of bytes that follow in it, 0 to 7.

#include "fuzz/promises.h"
#include "text/unicode/utf8.h"
#include "text/unicode/utf8_stream.h"

namespace moeflux::fuzz {
namespace {

void read(std::string_view input) {
  std::string all, pieces, whole;
  Utf8Stream stream;
  while (!input.empty()) {
    const std::string_view piece = input.substr(1, static_cast<unsigned char>(input[0]) % 8);
    input.remove_prefix(1 + piece.size());
    all += piece;
    stream.push(piece, pieces);
    MF_REQUIRE(stream.held_back() <= 3, "at most the beginning of a character is held back");
    MF_REQUIRE(is_valid_utf8(pieces), "what was given out is UTF-8");
  }
  stream.finish(pieces);
  append_lossy(whole, all);
  MF_REQUIRE(pieces == whole, "any split of the bytes gives the same text");
  MF_REQUIRE(valid_utf8_prefix(all) < all.size() || whole == all, "valid text stays as it is");
}

}  // namespace
}  // namespace moeflux::fuzz

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  moeflux::fuzz::read(moeflux::fuzz::text_of(data, size));
  return 0;
}
