// Input: a routing trace.

#include "measure/routing_trace.h"

#include "fuzz/promises.h"

namespace moeflux::fuzz {
namespace {

void require_whole(const RoutingTrace& trace) {
  const RoutingShape& shape = trace.shape;
  MF_REQUIRE(shape.layers <= kMaxLayers && shape.experts <= kMaxExperts, "a shape is within its limits");
  MF_REQUIRE(shape.experts_per_token >= 1 && shape.experts_per_token <= shape.experts, "K is possible");
  MF_REQUIRE(trace.rows > 0 && !shape.routed.empty(), "a trace has rows and layers");
  for (std::size_t i = 0; i < shape.routed.size(); ++i) {
    MF_REQUIRE(shape.routed[i].index() < shape.layers, "a layer is one of the model's");
    MF_REQUIRE(i == 0 || shape.routed[i - 1] < shape.routed[i], "layers are ascending");
  }
  const std::size_t per_token = shape.experts_per_token;
  MF_REQUIRE(trace.experts.size() == trace.rows * shape.routed.size() * per_token, "every row is whole");
  for (std::size_t i = 0; i < trace.experts.size(); ++i) {
    MF_REQUIRE(trace.experts[i] < shape.experts, "an expert is one of the model's");
    MF_REQUIRE(i % per_token == 0 || trace.experts[i - 1] < trace.experts[i], "experts are ascending");
  }
}

// What is accepted can be played: each layer hears what the trace has for it, and then the first row again.
void play(const RoutingTrace& trace) {
  const RoutingShape& shape = trace.shape;
  TraceRouting routing(trace);
  std::vector<std::uint32_t> chosen((trace.rows + 1) * shape.experts_per_token);
  std::vector<float> weights(chosen.size());
  for (const LayerId layer : shape.routed) {
    routing.choose(layer, shape.experts, shape.experts_per_token, chosen, weights);
    MF_REQUIRE(std::equal(chosen.begin(), chosen.begin() + shape.experts_per_token,
                          chosen.end() - shape.experts_per_token),
               "after the last row comes the first");
  }
}

void read(std::string_view text) {
  const Result<RoutingTrace> trace = parse_routing_trace(text, "a.routing");
  if (!trace) return require_refusal(trace.error());
  require_whole(*trace);
  play(*trace);
}

}  // namespace
}  // namespace moeflux::fuzz

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  moeflux::fuzz::read(moeflux::fuzz::text_of(data, size));
  return 0;
}
