#include "text/tokenizer/bpe.h"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <map>

namespace moeflux {
namespace {

using Pair = std::pair<std::uint32_t, std::uint32_t>;

// The 256 bytes, and merges that make the tokens 256, 257, ... in order.
Bpe bpe_of(const std::vector<Pair>& pairs) {
  std::array<std::optional<TokenId>, 256> bytes{};
  for (std::uint32_t byte = 0; byte < 256; ++byte) bytes[byte] = TokenId{byte};
  std::vector<Merge> merges;
  for (const auto& [left, right] : pairs)
    merges.push_back(
        {TokenId{left}, TokenId{right}, TokenId{static_cast<std::uint32_t>(256 + merges.size())}});
  return Bpe(bytes, merges, std::nullopt, 1);
}

std::vector<std::uint32_t> encoded(const Bpe& bpe, std::string_view piece, Bpe::Scratch& scratch) {
  std::vector<TokenId> tokens;
  bpe.encode(piece, scratch, tokens);
  std::vector<std::uint32_t> ids;
  for (const TokenId token : tokens) ids.push_back(token.index());
  return ids;
}

// The definition of BPE, without regard to speed.
std::vector<std::uint32_t> by_definition(const std::vector<Pair>& pairs, std::string_view piece) {
  std::map<Pair, std::uint32_t> ranks;
  for (std::uint32_t rank = 0; rank < pairs.size(); ++rank) ranks.emplace(pairs[rank], rank);
  std::vector<std::uint32_t> tokens;
  for (const char byte : piece) tokens.push_back(static_cast<unsigned char>(byte));
  while (true) {
    std::size_t best = tokens.size();
    std::uint32_t lowest = 0xFFFFFFFF;
    for (std::size_t i = 0; i + 1 < tokens.size(); ++i) {
      const auto rank = ranks.find({tokens[i], tokens[i + 1]});
      if (rank != ranks.end() && rank->second < lowest) {
        lowest = rank->second;
        best = i;
      }
    }
    if (best == tokens.size()) return tokens;
    tokens[best] = 256 + lowest;
    tokens.erase(tokens.begin() + static_cast<std::ptrdiff_t>(best) + 1);
  }
}

TEST(Bpe, MergesTheLowestRankFirstAndTheLeftmostOfEquals) {
  Bpe::Scratch scratch;
  EXPECT_EQ(encoded(bpe_of({{'b', 'c'}, {'a', 'b'}}), "abc", scratch),
            (std::vector<std::uint32_t>{'a', 256}));
  Bpe::Scratch other;
  EXPECT_EQ(encoded(bpe_of({{'a', 'a'}}), "aaa", other), (std::vector<std::uint32_t>{256, 'a'}));
}

TEST(Bpe, SkipsAByteWithoutAToken) {
  std::array<std::optional<TokenId>, 256> bytes{};
  bytes['a'] = TokenId{7};
  bytes['b'] = TokenId{8};
  const std::vector<Merge> merges{{TokenId{7}, TokenId{8}, TokenId{9}}};
  const Bpe bpe(bytes, merges, std::nullopt, 0);
  Bpe::Scratch scratch;
  EXPECT_EQ(encoded(bpe, "axb", scratch), (std::vector<std::uint32_t>{9}));
  EXPECT_EQ(encoded(bpe, "xyz", scratch), std::vector<std::uint32_t>{});
}

TEST(Bpe, UsesTheLastRankOfADuplicatePair) {
  std::array<std::optional<TokenId>, 256> bytes{};
  for (const char byte : {'a', 'b', 'c'})
    bytes[static_cast<unsigned char>(byte)] = TokenId{static_cast<std::uint32_t>(byte)};
  const TokenId a{'a'}, b{'b'}, c{'c'}, ab{256}, bc{257};
  const std::vector<Merge> merges{{a, b, ab}, {b, c, bc}, {a, b, ab}};
  const Bpe bpe(bytes, merges, std::nullopt, 0);
  Bpe::Scratch scratch;
  EXPECT_EQ(encoded(bpe, "abc", scratch), (std::vector<std::uint32_t>{'a', 257}));
}

TEST(Bpe, EncodesALongRunByDoubling) {
  std::vector<Pair> pairs{{'a', 'a'}};
  for (std::uint32_t i = 0; i < 6; ++i) pairs.emplace_back(256 + i, 256 + i);
  const Bpe bpe = bpe_of(pairs);
  Bpe::Scratch scratch;
  const std::vector<std::uint32_t> ids = encoded(bpe, std::string(1'024'000, 'a'), scratch);
  EXPECT_EQ(ids, std::vector<std::uint32_t>(1'024'000 / 128, 262));
}

// Merges of existing tokens over three letters, so that many pairs compete. Some pieces are merged by scan,
// some by heap.
RC_GTEST_PROP(Bpe, AgreesWithTheDefinition, ()) {
  const auto count = *rc::gen::inRange<std::uint32_t>(0, 20);
  std::vector<Pair> pairs;
  const auto token = [&] {
    const auto number = *rc::gen::inRange<std::uint32_t>(0, static_cast<std::uint32_t>(3 + pairs.size()));
    return number < 3 ? 'a' + number : 253 + number;
  };
  for (std::uint32_t i = 0; i < count; ++i) {
    const Pair pair{token(), token()};
    if (std::find(pairs.begin(), pairs.end(), pair) == pairs.end()) pairs.push_back(pair);
  }
  const Bpe bpe = bpe_of(pairs);
  Bpe::Scratch scratch;
  for (int i = 0; i < 5; ++i) {
    const auto length = *rc::gen::inRange<std::size_t>(0, 150);
    const auto piece = *rc::gen::container<std::string>(length, rc::gen::elementOf(std::string("abc")));
    const std::vector<std::uint32_t> expected = by_definition(pairs, piece);
    RC_ASSERT(encoded(bpe, piece, scratch) == expected);
    RC_ASSERT(encoded(bpe, piece, scratch) == expected);  // possibly from the cache
  }
}

}  // namespace
}  // namespace moeflux
