// Input: a model.safetensors.index.json.

#include "fuzz/promises.h"
#include "source/safetensors/shard_index.h"

namespace moeflux::fuzz {
namespace {

void read(std::string_view text) {
  std::size_t pairs = 0;
  const Status whole = visit_weight_map(
      text, "model.safetensors.index.json", [&](std::string_view, std::string_view file) -> Status {
        ++pairs;
        MF_REQUIRE(!file.empty() && file != "." && file != "..", "a shard has a name of its own");
        MF_REQUIRE(file.find('/') == std::string_view::npos, "a shard lies beside the index");
        require_fit_for_people(file);
        return {};
      });
  if (!whole) require_refusal(whole.error());
  if (pairs == 0) return;

  // An error of the visitor ends the walk and is returned unchanged.
  std::size_t visits = 0;
  const Status stopped = visit_weight_map(text, "model.safetensors.index.json",
                                          [&](std::string_view, std::string_view) -> Status {
                                            ++visits;
                                            return Error{ErrorCode::cancelled, "enough"};
                                          });
  MF_REQUIRE(!stopped && stopped.error().code() == ErrorCode::cancelled, "the visitor's error is returned");
  MF_REQUIRE(visits == 1, "the walk ends at the visitor's error");
}

}  // namespace
}  // namespace moeflux::fuzz

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  moeflux::fuzz::read(moeflux::fuzz::text_of(data, size));
  return 0;
}
