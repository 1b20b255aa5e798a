#pragma once
// The alphabet in which byte-level tokenizers spell bytes as characters: GPT-2's 256 characters.
//
// A byte that is a visible Latin-1 character is spelled as itself. The others, in ascending order, are
// U+0100, U+0101 and so on, so a space is U+0120. Pure functions, thread-safe.

#include <optional>
#include <string>
#include <string_view>

namespace moeflux {

// The character of `byte`.
char32_t alphabet_character(unsigned char byte);

// Appends `bytes` as spelled in tokenizer.json.
void append_spelled(std::string& out, std::string_view bytes);

// The bytes that `spelled` (valid UTF-8) spells; nullopt if a character is not in the alphabet.
std::optional<std::string> bytes_of_spelled(std::string_view spelled);

}  // namespace moeflux
