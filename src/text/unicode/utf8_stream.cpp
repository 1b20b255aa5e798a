#include "text/unicode/utf8_stream.h"

#include "text/unicode/utf8.h"

namespace moeflux {

void Utf8Stream::push(std::string_view bytes, std::string& text) {
  // First the rest of the held character, byte by byte; it needs three more at most.
  while (held_ > 0 && !bytes.empty()) {
    begun_[held_++] = bytes.front();
    const Utf8Step step = utf8_step({begun_.data(), held_});
    if (step.kind == Utf8Step::Kind::incomplete) {
      bytes.remove_prefix(1);
      continue;
    }
    if (step.kind == Utf8Step::Kind::character) {
      text.append(begun_.data(), held_);
      bytes.remove_prefix(1);
    } else {
      text += kReplacementCharacter;  // for the held bytes; the byte that does not fit begins a new character
    }
    held_ = 0;
  }
  while (!bytes.empty()) {
    const std::size_t valid = valid_utf8_prefix(bytes);
    text += bytes.substr(0, valid);
    bytes.remove_prefix(valid);
    if (bytes.empty()) return;
    const Utf8Step step = utf8_step(bytes);
    if (step.kind == Utf8Step::Kind::incomplete) {
      held_ = bytes.copy(begun_.data(), begun_.size());
      return;
    }
    text += kReplacementCharacter;
    bytes.remove_prefix(step.bytes);
  }
}

void Utf8Stream::finish(std::string& text) {
  if (held_ > 0) text += kReplacementCharacter;
  held_ = 0;
}

}  // namespace moeflux
