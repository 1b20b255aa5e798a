#pragma once
// The structure of UTF-8 that layers below text need to cut a string between characters; text/unicode/utf8.h
// decodes. Pure functions: any thread.

namespace moeflux {

// Whether `c` is a byte of a UTF-8 character after its first one.
constexpr bool is_utf8_continuation(char c) { return (static_cast<unsigned char>(c) & 0xC0) == 0x80; }

}  // namespace moeflux
