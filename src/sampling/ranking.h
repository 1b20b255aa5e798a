#pragma once
// The tokens of a vocabulary in order of probability, without a full sort.
//
// The order is by descending logit; ties go to the lower id. top_k, top_p and min_p each keep a prefix of
// this order, and a draw is a place in it, so every query is about a Prefix: its number of tokens and their
// total weight. build() distributes the tokens over buckets of similar weight and keeps the count and sum of
// each bucket. The buckets answer a query except for one bucket, in which a linear-time selection answers it.
// Sums are of integers (sampling/weight.h), so the answers are exactly those of a full sort, ties included.
//
// Tokens of weight 0, less probable than 2^-43 of the best, are not part of the order.
//
// Owns 18 bytes per token. Refers to the logits of the last build(). Allocates in the constructor only. One
// thread at a time.

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "base/ids.h"

namespace moeflux {

// Counters of the work done since they were reset, for tests and benchmarks.
struct SamplingWork {
  std::uint64_t logits_read = 0;      // in passes over all logits
  std::uint64_t blocks_searched = 0;  // blocks of 128 tokens searched for the tokens of one bucket
  std::uint64_t tokens_selected = 0;  // copied out of a bucket for a linear-time selection
  std::uint64_t tokens_sorted = 0;
};

class Ranking {
 public:
  explicit Ranking(std::size_t vocabulary_size);

  static constexpr std::size_t kBlockTokens = 128;
  std::size_t blocks() const { return lowest_bucket_of_block_.size(); }

  // `highest_of_block` has the largest logit of every kBlockTokens tokens. Requires: the largest of all is
  // finite, no logit is NaN, and `inverse_temperature` is positive. Tokens of blocks whose highest logit is
  // below `needed` are left out of the order.
  void build(std::span<const float> logits, std::span<const float> highest_of_block,
             double inverse_temperature, float needed);

  struct Prefix {
    std::uint64_t tokens = 0;
    std::uint64_t weight = 0;
  };

  Prefix all() const { return all_; }

  // The first `count` tokens, or all.
  Prefix first(std::uint64_t count);

  // The tokens that have less weight than `limit` before them.
  Prefix within(double limit);

  // The tokens whose exponent (exponent_of()) is at least `lowest`.
  Prefix at_least(double lowest);

  // The token at the place `weight` if each token is as long as its weight. Requires: weight < all().weight.
  TokenId at(std::uint64_t weight);

  SamplingWork work;

 private:
  static constexpr std::size_t kBuckets = 2048;  // 64 per factor of e; the last holds the tokens of weight 0
  static constexpr std::uint16_t kNoBucket = kBuckets - 1;
  static constexpr double kBucketsPerUnit = 64;
  static constexpr std::size_t kSortedAtMost = 64;

  struct Token {
    float logit;
    std::uint32_t id;
    std::uint64_t weight;
  };

  // A bucket, and the prefix before it.
  struct Place {
    std::size_t bucket;
    Prefix before;
  };

  static bool precedes(const Token& a, const Token& b) {
    return a.logit != b.logit ? a.logit > b.logit : a.id < b.id;
  }
  static std::int32_t bucket_of(double exponent);

  void add_block(std::size_t begin, std::size_t end);
  std::span<Token> gather(std::size_t bucket);
  // The first bucket for which passed(prefix up to and including it) is false.
  template <class Passed>
  Place find_bucket(Passed passed) const;
  // The prefix of the bucket's tokens that begin at weights for which wanted(weight) is true. Requires:
  // wanted is true up to some weight and false after it. Moves those tokens to the front, the last one of the
  // prefix to its end.
  template <class Wanted>
  Prefix select(std::span<Token> tokens, std::uint64_t weight_before, Wanted wanted);

  std::span<const float> logits_;
  float highest_ = 0;
  double inverse_temperature_ = 1;
  Prefix all_;
  std::array<Prefix, kBuckets> buckets_;
  std::vector<std::uint16_t> bucket_of_token_;
  std::vector<std::uint16_t> lowest_bucket_of_block_;
  std::vector<Token> gathered_;  // room for all tokens
  std::size_t gathered_bucket_ = kBuckets;
  std::size_t gathered_tokens_ = 0;
};

}  // namespace moeflux
