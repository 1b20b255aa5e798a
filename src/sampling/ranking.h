#pragma once
// The tokens of a vocabulary in order of probability, without sorting them.
//
// The order is: higher logit first, of equals the lower id. top_k, top_p and min_p each keep a beginning of
// this order, and the draw is a place in it; so all that is asked are Beginnings: how many tokens, which
// weight together. build() distributes the tokens over buckets of like weight and remembers, for each
// bucket, their number and sum; a question is answered by the buckets but for one, and in that one by
// selection, which is linear. Sums are of integers (sampling/weight.h), so the answers are those of a full
// sort, exactly, equal logits included.
//
// Tokens of weight 0, less probable than 2^-43 of the best, are not part of the order.
//
// Owns 18 bytes a token. build() refers to the logits until the next one. Allocates in the constructor only.
// One thread at a time.

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "base/ids.h"

namespace moeflux {

// What was done since the counters were reset: for tests and benchmarks.
struct SamplingWork {
  std::uint64_t logits_read = 0;      // by passes over all of them
  std::uint64_t blocks_searched = 0;  // of 128 tokens each, for those of one bucket
  std::uint64_t tokens_selected = 0;  // copied out of a bucket, for a selection of linear time
  std::uint64_t tokens_sorted = 0;
};

class Ranking {
 public:
  explicit Ranking(std::size_t vocabulary_size);

  static constexpr std::size_t kBlockTokens = 128;
  std::size_t blocks() const { return lowest_bucket_of_block_.size(); }

  // `highest_of_block` has the largest logit of every kBlockTokens tokens. The largest of all is finite,
  // none of them is NaN, and `inverse_temperature` is positive. Tokens of blocks that do not reach `needed`
  // are left out of the order.
  void build(std::span<const float> logits, std::span<const float> highest_of_block,
             double inverse_temperature, float needed);

  // The first tokens of the order.
  struct Beginning {
    std::uint64_t tokens = 0;
    std::uint64_t weight = 0;
  };

  Beginning all() const { return all_; }

  // The first `count`, or all.
  Beginning first(std::uint64_t count);

  // Those before which lies less weight than `limit`.
  Beginning within(double limit);

  // Those whose exponent (exponent_of()) is at least `lowest`.
  Beginning at_least(double lowest);

  // The token in which the place `weight` lies, when each has its weight as length. Requires a place before
  // the end: weight < all().weight.
  TokenId at(std::uint64_t weight);

  SamplingWork work;

 private:
  static constexpr std::size_t kBuckets = 2048;  // 64 for each factor of e; the last: those of weight 0
  static constexpr std::uint16_t kNoBucket = kBuckets - 1;
  static constexpr double kBucketsPerUnit = 64;
  static constexpr std::size_t kSortedAtMost = 64;

  struct Token {
    float logit;
    std::uint32_t id;
    std::uint64_t weight;
  };

  // Where a bucket begins in the order.
  struct Place {
    std::size_t bucket;
    Beginning before;
  };

  static bool precedes(const Token& a, const Token& b) {
    return a.logit != b.logit ? a.logit > b.logit : a.id < b.id;
  }
  static std::int32_t bucket_of(double exponent);

  void add_block(std::size_t begin, std::size_t end);
  std::span<Token> gather(std::size_t bucket);
  // The first bucket for which passed(what lies before the next one) does not hold.
  template <class Passed>
  Place find_bucket(Passed passed) const;
  // How many tokens of a bucket begin at weights for which wanted(weight) holds, which it does up to some
  // weight; they are put first, the last of them last.
  template <class Wanted>
  Beginning select(std::span<Token> tokens, std::uint64_t weight_before, Wanted wanted);

  std::span<const float> logits_;
  float highest_ = 0;
  double inverse_temperature_ = 1;
  Beginning all_;
  std::array<Beginning, kBuckets> buckets_;
  std::vector<std::uint16_t> bucket_of_token_;
  std::vector<std::uint16_t> lowest_bucket_of_block_;
  std::vector<Token> gathered_;  // room for all tokens
  std::size_t gathered_bucket_ = kBuckets;
  std::size_t gathered_tokens_ = 0;
};

}  // namespace moeflux
