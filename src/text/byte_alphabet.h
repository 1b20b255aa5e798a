#pragma once
// How byte-level tokenizers write bytes as characters: GPT-2's alphabet of 256.
//
// A byte that is a visible Latin-1 character stands for itself; the others, in ascending order, are U+0100,
// U+0101, ...: a space is U+0120. Pure functions: any thread.

#include <optional>
#include <string>
#include <string_view>

namespace moeflux {

// The character that stands for `byte`.
char32_t alphabet_character(unsigned char byte);

// `bytes` as tokenizer.json spells them, appended to `out`.
void append_spelled(std::string& out, std::string_view bytes);

// The bytes that `spelled` (valid UTF-8) stands for; nothing when a character is not of the alphabet.
std::optional<std::string> bytes_of_spelled(std::string_view spelled);

}  // namespace moeflux
