// Input: a text. The automaton of JSON mode must accept it exactly if another parser accepts it as an object.
// Both allow duplicate keys.

#include "text/json/json_automaton.h"

#include "fuzz/promises.h"
#include "text/json/testing/json_oracle.h"

namespace moeflux::fuzz {
namespace {

void read(std::string_view text) {
  JsonAutomaton automaton(JsonObjectLimits{});
  std::size_t size = 0;
  while (size < text.size() && automaton.accept(static_cast<unsigned char>(text[size]))) ++size;
  const bool accepted = size == text.size() && automaton.complete();
  MF_REQUIRE(accepted == should_accept(text), "both parsers accept the same texts");

  const std::string whole = std::string(text.substr(0, size)) + closing(automaton);
  MF_REQUIRE(should_accept(whole), "every accepted beginning is that of an object");

  constexpr JsonObjectLimits kTight{.depth = 3, .whitespace = 1};
  MF_REQUIRE(accepts(text, kTight) == should_accept(text, kTight), "also with tighter limits");
}

}  // namespace
}  // namespace moeflux::fuzz

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  moeflux::fuzz::read(moeflux::fuzz::text_of(data, size));
  return 0;
}
