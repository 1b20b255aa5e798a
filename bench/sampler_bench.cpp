// Measures how long it takes to choose a token from a vocabulary of 248,320.
//
//   sampler_bench --benchmark_repetitions=5
//
// Peaked: logits as models give them, with some tens of probable tokens and the others far below. Flat: a
// standard deviation of 0.5, so top_p keeps most of the vocabulary. Equal: all logits are the same, the worst
// case of the selection. JsonMask: the tokens that may come next, in the states that a generation passes
// through. JsonDraw: a choice among them.

#include <benchmark/benchmark.h>

#include <random>
#include <string>
#include <vector>

#include "sampling/json_object.h"
#include "sampling/sampler.h"

namespace moeflux {
namespace {

constexpr std::size_t kTokens = 248320;

std::vector<float> normal_logits(float deviation) {
  std::mt19937_64 random(1);
  std::normal_distribution<float> normal(0, deviation);
  std::vector<float> logits(kTokens);
  for (float& logit : logits) logit = normal(random);
  return logits;
}

std::vector<float> peaked_logits() {
  std::vector<float> logits = normal_logits(2);
  for (std::size_t i = 0; i < 30; ++i) logits[i * 8000] = 20.0f - static_cast<float>(i) * 0.5f;
  return logits;
}

void sample(benchmark::State& state, SamplingOptions options, const std::vector<float>& logits,
            Constraint* constraint = nullptr) {
  options.seed = 1;
  SamplingWorkspace workspace(kTokens);
  Sampler sampler = *Sampler::create(options, workspace);
  for (auto _ : state) {
    const auto choice = sampler.sample(logits, constraint);
    benchmark::DoNotOptimize(choice->token);
    sampler.accept(choice->token);
  }
}

SamplingOptions usual() {
  SamplingOptions options;
  options.temperature = 0.6;
  options.top_k = 20;
  options.top_p = 0.95;
  return options;
}

SamplingOptions only_top_p() {
  SamplingOptions options = usual();
  options.top_k = 0;
  return options;
}

void Greedy(benchmark::State& state) {
  SamplingOptions options;
  options.temperature = 0;
  sample(state, options, peaked_logits());
}
BENCHMARK(Greedy)->Unit(benchmark::kMicrosecond);

void TopK20TopP95Peaked(benchmark::State& state) { sample(state, usual(), peaked_logits()); }
BENCHMARK(TopK20TopP95Peaked)->Unit(benchmark::kMicrosecond);

void TopP95Peaked(benchmark::State& state) { sample(state, only_top_p(), peaked_logits()); }
BENCHMARK(TopP95Peaked)->Unit(benchmark::kMicrosecond);

void TopP95Flat(benchmark::State& state) { sample(state, only_top_p(), normal_logits(0.5f)); }
BENCHMARK(TopP95Flat)->Unit(benchmark::kMicrosecond);

void TopP95Equal(benchmark::State& state) { sample(state, only_top_p(), std::vector<float>(kTokens, 1.0f)); }
BENCHMARK(TopP95Equal)->Unit(benchmark::kMicrosecond);

void PenaltiesAndTopLogprobs(benchmark::State& state) {
  SamplingOptions options = usual();
  options.repetition_penalty = 1.1;
  options.presence_penalty = 1.5;
  options.top_logprobs = 20;
  sample(state, options, peaked_logits());
}
BENCHMARK(PenaltiesAndTopLogprobs)->Unit(benchmark::kMicrosecond);

// Every byte, then words with and without a space before them, a fiftieth of them with a quote.
std::vector<std::string> words() {
  std::mt19937 random(2);
  std::vector<std::string> tokens{"<|end|>"};
  for (int byte = 0; byte < 256; ++byte) tokens.emplace_back(1, static_cast<char>(byte));
  while (tokens.size() < kTokens) {
    std::string word(random() % 2, ' ');
    if (random() % 100 == 0) word += '"';
    for (std::size_t size = 2 + random() % 9; word.size() < size;)
      word += static_cast<char>('a' + random() % 26);
    if (random() % 100 == 0) word += "\":";
    tokens.push_back(word);
  }
  return tokens;
}

struct JsonModel {
  JsonModel()
      : bytes(words()), vocabulary(bytes, std::vector<TokenId>{TokenId{0}}, [](TokenId) { return false; }) {}
  void begin(JsonObjectConstraint& constraint, std::string_view text) const {
    for (const char byte : text) constraint.accept(TokenId{1u + static_cast<unsigned char>(byte)});
  }
  TokenBytes bytes;
  JsonVocabulary vocabulary;
};

void JsonVocabularyBuild(benchmark::State& state) {
  const TokenBytes bytes(words());
  for (auto _ : state) JsonVocabulary(bytes, std::vector<TokenId>{TokenId{0}}, [](TokenId) { return false; });
}
BENCHMARK(JsonVocabularyBuild)->Unit(benchmark::kMillisecond);

void JsonMask(benchmark::State& state, std::string_view text) {
  const JsonModel model;
  JsonObjectConstraint constraint(model.vocabulary);
  model.begin(constraint, text);
  std::vector<std::uint64_t> mask((kTokens + 63) / 64);
  for (auto _ : state) {
    constraint.write_mask(mask);
    benchmark::DoNotOptimize(mask.data());
  }
  state.counters["nodes"] = static_cast<double>(constraint.nodes_visited());
}
BENCHMARK_CAPTURE(JsonMask, begin, "")->Unit(benchmark::kMicrosecond);
BENCHMARK_CAPTURE(JsonMask, value, "{\"a\":")->Unit(benchmark::kMicrosecond);
BENCHMARK_CAPTURE(JsonMask, number, "{\"a\":1")->Unit(benchmark::kMicrosecond);
BENCHMARK_CAPTURE(JsonMask, string, "{\"a\":\"b")->Unit(benchmark::kMicrosecond);
BENCHMARK_CAPTURE(JsonMask, escape, "{\"a\":\"\\")->Unit(benchmark::kMicrosecond);

void JsonDraw(benchmark::State& state) {
  const JsonModel model;
  JsonObjectConstraint constraint(model.vocabulary);
  model.begin(constraint, "{\"a\":\"b");
  sample(state, usual(), peaked_logits(), &constraint);
}
BENCHMARK(JsonDraw)->Unit(benchmark::kMicrosecond);

}  // namespace
}  // namespace moeflux
