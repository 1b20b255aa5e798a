// Input: a routing recording.

#include "measure/routing_recording.h"

#include "fuzz/promises.h"

namespace moeflux::fuzz {
namespace {

void require_whole(const RoutingRecording& recording) {
  const RoutingShape& shape = recording.shape;
  MF_REQUIRE(shape.layers <= kMaxLayers && shape.experts <= kMaxExperts, "a shape is within its limits");
  MF_REQUIRE(shape.experts_per_token >= 1 && shape.experts_per_token <= shape.experts, "K is possible");
  MF_REQUIRE(recording.rows > 0 && !shape.routed.empty(), "a recording has rows and layers");
  for (std::size_t i = 0; i < shape.routed.size(); ++i) {
    MF_REQUIRE(shape.routed[i].index() < shape.layers, "a layer is one of the model's");
    MF_REQUIRE(i == 0 || shape.routed[i - 1] < shape.routed[i], "layers are ascending");
  }
  const std::size_t per_token = shape.experts_per_token;
  MF_REQUIRE(recording.experts.size() == recording.rows * shape.routed.size() * per_token,
             "every row is whole");
  for (std::size_t i = 0; i < recording.experts.size(); ++i) {
    MF_REQUIRE(recording.experts[i] < shape.experts, "an expert is one of the model's");
    MF_REQUIRE(i % per_token == 0 || recording.experts[i - 1] < recording.experts[i],
               "experts are ascending");
  }
}

// An accepted recording can be played: each layer gets its rows, and then the first row again.
void play(const RoutingRecording& recording) {
  const RoutingShape& shape = recording.shape;
  RecordedRouting routing(recording);
  std::vector<std::uint32_t> chosen((recording.rows + 1) * shape.experts_per_token);
  std::vector<float> weights(chosen.size());
  for (const LayerId layer : shape.routed) {
    routing.choose(layer, shape.experts, shape.experts_per_token, chosen, weights);
    MF_REQUIRE(std::equal(chosen.begin(), chosen.begin() + shape.experts_per_token,
                          chosen.end() - shape.experts_per_token),
               "after the last row comes the first");
  }
}

void read(std::string_view text) {
  const Result<RoutingRecording> recording = parse_routing_recording(text, "a.routing");
  if (!recording) return require_refusal(recording.error());
  require_whole(*recording);
  play(*recording);
}

}  // namespace
}  // namespace moeflux::fuzz

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  moeflux::fuzz::read(moeflux::fuzz::text_of(data, size));
  return 0;
}
