// Measures how fast text becomes tokens, and tokens text, with one thread.
//
//   tokenizer_bench [--benchmark_...] [TOKENIZER_JSON]      (default: Tern's)
//
// The texts are generated: prose of English words with their real skew, so that a few words are most of the
// text; source code; Chinese; one letter a hundred thousand times. Rates are in bytes of text.

#include <benchmark/benchmark.h>

#include <cmath>
#include <cstdio>
#include <fstream>
#include <iterator>
#include <random>
#include <string>
#include <string_view>
#include <vector>

#include "text/tokenizer/detokenizer.h"
#include "text/tokenizer/tokenizer.h"
#include "text/unicode/utf8.h"

namespace moeflux {
namespace {

constexpr std::string_view kWords[] = {
    "the",     "of",       "and",      "to",        "in",       "a",         "is",        "that",
    "for",     "it",       "as",       "was",       "with",     "be",        "by",        "on",
    "not",     "he",       "his",      "but",       "at",       "are",       "this",      "have",
    "from",    "or",       "had",      "which",     "one",      "you",       "were",      "her",
    "all",     "she",      "there",    "would",     "their",    "we",        "him",       "been",
    "when",    "who",      "will",     "more",      "said",     "about",     "into",      "than",
    "could",   "time",     "people",   "little",    "world",    "still",     "between",   "another",
    "nothing", "question", "remember", "therefore", "mountain", "evening",   "together",  "window",
    "quietly", "distance", "yellow",   "afternoon", "captain",  "beautiful", "strangely", "lanterns"};

std::string prose(std::size_t bytes) {
  std::mt19937 random(1);
  std::string text;
  bool begins = true;
  while (text.size() < bytes) {
    // Zipf: the word of rank r is as frequent as 1 / r.
    const double uniform = std::uniform_real_distribution<double>(0, 1)(random);
    const auto rank = static_cast<std::size_t>(std::pow(static_cast<double>(std::size(kWords)), uniform)) - 1;
    std::string word(kWords[std::min(rank, std::size(kWords) - 1)]);
    if (random() % 12 == 0) word += static_cast<char>('a' + random() % 26);  // words that are in no cache
    if (begins) word[0] = static_cast<char>(word[0] - 32);
    begins = random() % 14 == 0;
    text += word;
    text += begins ? (random() % 6 == 0 ? ".\n\n" : ". ") : (random() % 10 == 0 ? ", " : " ");
  }
  return text;
}

std::string code(std::size_t bytes) {
  std::mt19937 random(2);
  std::string text;
  while (text.size() < bytes) {
    text += std::string(4 * (random() % 4), ' ');
    text += kWords[random() % std::size(kWords)];
    text += random() % 2 == 0 ? "_count += " : "(self, x[";
    text += std::to_string(random() % 10'000);
    text += random() % 2 == 0 ? ";\n" : "]) {\n";
  }
  return text;
}

std::string chinese(std::size_t bytes) {
  std::mt19937 random(3);
  std::string text;
  while (text.size() < bytes)
    append_utf8(text, random() % 16 == 0 ? U'\u3002' : static_cast<char32_t>(0x4E00 + random() % 3000));
  return text;
}

void encode(benchmark::State& state, const Tokenizer& tokenizer, const std::string& text) {
  std::vector<TokenId> tokens;
  for (auto _ : state) {
    tokens.clear();
    if (!tokenizer.encode(text, AddedTokens::all, tokens)) state.SkipWithError("a pattern failed");
    benchmark::DoNotOptimize(tokens.data());
  }
  state.SetBytesProcessed(state.iterations() * static_cast<std::int64_t>(text.size()));
  state.counters["bytes/token"] = static_cast<double>(text.size()) / static_cast<double>(tokens.size());
}

void decode(benchmark::State& state, const Tokenizer& tokenizer, const std::string& text) {
  std::vector<TokenId> tokens;
  if (!tokenizer.encode(text, AddedTokens::all, tokens)) state.SkipWithError("a pattern failed");
  for (auto _ : state) {
    Detokenizer detokenizer(tokenizer, true);
    std::size_t bytes = 0;
    for (const TokenId token : tokens) bytes += detokenizer.push(token).size();
    benchmark::DoNotOptimize(bytes);
  }
  state.SetBytesProcessed(state.iterations() * static_cast<std::int64_t>(text.size()));
}

void parse(benchmark::State& state, const std::string& json) {
  for (auto _ : state) benchmark::DoNotOptimize(Tokenizer::parse(json, "tokenizer.json").has_value());
  state.SetBytesProcessed(state.iterations() * static_cast<std::int64_t>(json.size()));
}

int run(int argc, char** argv) {
  benchmark::Initialize(&argc, argv);
  const std::string path = argc > 1 ? argv[1] : MOEFLUX_REPOSITORY "/models/tern/tokenizer.json";
  std::ifstream file(path, std::ios::binary);
  const std::string json{std::istreambuf_iterator<char>(file), {}};
  const Result<Tokenizer> tokenizer = Tokenizer::parse(json, path);
  if (!tokenizer) {
    std::fprintf(stderr, "%s\n", tokenizer.error().message().c_str());
    return 1;
  }
  constexpr std::size_t kBytes = 4 << 20;
  const std::string prose_text = prose(kBytes), code_text = code(kBytes), chinese_text = chinese(kBytes),
                    run_text(100'000, 'a');
  benchmark::RegisterBenchmark("parse", parse, json)->Unit(benchmark::kMillisecond);
  const auto add = [&](const char* name, auto function, const std::string& text) {
    benchmark::RegisterBenchmark(name, [&, function](benchmark::State& state) {
      function(state, *tokenizer, text);
    })->Unit(benchmark::kMillisecond);
  };
  add("encode/prose", encode, prose_text);
  add("encode/code", encode, code_text);
  add("encode/chinese", encode, chinese_text);
  add("encode/one_letter", encode, run_text);
  add("decode/prose", decode, prose_text);
  benchmark::RunSpecifiedBenchmarks();
  return 0;
}

}  // namespace
}  // namespace moeflux

int main(int argc, char** argv) { return moeflux::run(argc, argv); }
