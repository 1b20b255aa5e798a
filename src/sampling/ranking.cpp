#include "sampling/ranking.h"

#include <algorithm>

#include "base/check.h"
#include "sampling/weight.h"

namespace moeflux {

Ranking::Ranking(std::size_t vocabulary_size)
    : buckets_{},
      bucket_of_token_(vocabulary_size),
      lowest_bucket_of_block_((vocabulary_size + kBlockTokens - 1) / kBlockTokens),
      gathered_(vocabulary_size) {
  MF_REQUIRE(vocabulary_size <= kMaxSampledVocabulary, "the weights of a vocabulary add up without overflow");
}

// Monotone: the tokens of a lower bucket precede those of a higher one.
std::int32_t Ranking::bucket_of(double exponent) {
  constexpr double kLast = kNoBucket - 1;
  const double position = exponent * -kBucketsPerUnit;
  return static_cast<std::int32_t>(position < kLast ? position : kLast);
}

void Ranking::build(std::span<const float> logits, std::span<const float> highest_of_block,
                    double inverse_temperature, float needed) {
  MF_REQUIRE(logits.size() == bucket_of_token_.size(), "there is a logit for each token");
  MF_REQUIRE(highest_of_block.size() == blocks(), "there is a highest logit for each block");
  logits_ = logits;
  highest_ = *std::max_element(highest_of_block.begin(), highest_of_block.end());
  inverse_temperature_ = inverse_temperature;
  gathered_bucket_ = kBuckets;
  buckets_.fill({});
  for (std::size_t block = 0; block < blocks(); ++block) {
    const std::size_t begin = block * kBlockTokens, end = std::min(begin + kBlockTokens, logits.size());
    if (highest_of_block[block] < needed) {
      lowest_bucket_of_block_[block] = kBuckets;
      continue;
    }
    add_block(begin, end);
    work.logits_read += end - begin;
  }
  all_ = {};
  for (std::size_t bucket = 0; bucket < kNoBucket; ++bucket) {
    all_.tokens += buckets_[bucket].tokens;
    all_.weight += buckets_[bucket].weight;
  }
}

// Two loops, because the first one vectorizes and the second cannot.
void Ranking::add_block(std::size_t begin, std::size_t end) {
  std::array<std::uint64_t, kBlockTokens> weights;
  std::array<std::int32_t, kBlockTokens> buckets;
  const std::size_t size = end - begin;
  const float* const logits = logits_.data() + begin;
  const float highest = highest_;
  const double inverse_temperature = inverse_temperature_;
  for (std::size_t i = 0; i < size; ++i) {
    const double exponent = exponent_of(logits[i], highest, inverse_temperature);
    weights[i] = weight_of(exponent);
    buckets[i] = bucket_of(exponent);
  }
  std::uint16_t lowest = kNoBucket;
  for (std::size_t i = 0; i < size; ++i) {
    const std::uint16_t bucket = weights[i] == 0 ? kNoBucket : static_cast<std::uint16_t>(buckets[i]);
    bucket_of_token_[begin + i] = bucket;
    lowest = std::min(lowest, bucket);
    ++buckets_[bucket].tokens;
    buckets_[bucket].weight += weights[i];
  }
  lowest_bucket_of_block_[begin / kBlockTokens] = lowest;
}

std::span<Ranking::Token> Ranking::gather(std::size_t bucket) {
  if (gathered_bucket_ != bucket) {
    gathered_bucket_ = bucket;
    gathered_tokens_ = 0;
    for (std::size_t block = 0; block < lowest_bucket_of_block_.size(); ++block) {
      if (lowest_bucket_of_block_[block] > bucket) continue;
      ++work.blocks_searched;
      const std::size_t end = std::min((block + 1) * kBlockTokens, logits_.size());
      for (std::size_t id = block * kBlockTokens; id < end; ++id) {
        if (bucket_of_token_[id] != bucket) continue;
        const double exponent = exponent_of(logits_[id], highest_, inverse_temperature_);
        gathered_[gathered_tokens_++] = {logits_[id], static_cast<std::uint32_t>(id), weight_of(exponent)};
      }
    }
    work.tokens_selected += gathered_tokens_;
  }
  return std::span(gathered_).first(gathered_tokens_);
}

template <class Passed>
Ranking::Place Ranking::find_bucket(Passed passed) const {
  Place place{0, {}};
  for (; place.bucket < kNoBucket; ++place.bucket) {
    const Prefix next{place.before.tokens + buckets_[place.bucket].tokens,
                      place.before.weight + buckets_[place.bucket].weight};
    if (!passed(next)) break;
    place.before = next;
  }
  return place;
}

template <class Wanted>
Ranking::Prefix Ranking::select(std::span<Token> tokens, std::uint64_t weight_before, Wanted wanted) {
  // Tokens before `low` are wanted and `weight` lies before token `low`; tokens from `high` on are not
  // wanted.
  std::size_t low = 0, high = tokens.size();
  std::uint64_t weight = weight_before;
  const auto place = [&](std::size_t i) { return tokens.begin() + static_cast<std::ptrdiff_t>(i); };
  while (high - low > kSortedAtMost) {
    const std::size_t middle = low + (high - low) / 2;
    std::nth_element(place(low), place(middle), place(high), precedes);
    std::uint64_t before_middle = weight;
    for (std::size_t i = low; i < middle; ++i) before_middle += tokens[i].weight;
    if (wanted(before_middle)) {
      low = middle;
      weight = before_middle;
    } else {
      high = middle;
    }
  }
  std::sort(place(low), place(high), precedes);
  work.tokens_sorted += high - low;
  while (low < high && wanted(weight)) weight += tokens[low++].weight;
  return {low, weight};
}

Ranking::Prefix Ranking::first(std::uint64_t count) {
  const Place place = find_bucket([count](const Prefix& next) { return next.tokens <= count; });
  Prefix result = place.before;
  if (place.bucket == kNoBucket || result.tokens == count) return result;
  const std::span<Token> tokens = gather(place.bucket);
  const std::size_t missing = static_cast<std::size_t>(count - result.tokens);
  std::nth_element(tokens.begin(), tokens.begin() + static_cast<std::ptrdiff_t>(missing), tokens.end(),
                   precedes);
  for (const Token& token : tokens.first(missing)) result.weight += token.weight;
  result.tokens = count;
  return result;
}

Ranking::Prefix Ranking::within(double limit) {
  const auto wanted = [limit](std::uint64_t weight) { return static_cast<double>(weight) < limit; };
  const Place place = find_bucket([&](const Prefix& next) { return wanted(next.weight); });
  if (place.bucket == kNoBucket || !wanted(place.before.weight)) return place.before;
  const Prefix part = select(gather(place.bucket), place.before.weight, wanted);
  return {place.before.tokens + part.tokens, part.weight};
}

Ranking::Prefix Ranking::at_least(double lowest) {
  const auto last = static_cast<std::size_t>(bucket_of(lowest));
  Prefix result;
  for (std::size_t bucket = 0; bucket < last; ++bucket) {
    result.tokens += buckets_[bucket].tokens;
    result.weight += buckets_[bucket].weight;
  }
  for (const Token& token : gather(last)) {
    if (exponent_of(token.logit, highest_, inverse_temperature_) < lowest) continue;
    ++result.tokens;
    result.weight += token.weight;
  }
  return result;
}

TokenId Ranking::at(std::uint64_t weight) {
  MF_REQUIRE(weight < all_.weight, "the place is inside the weight of all tokens");
  const Place place = find_bucket([weight](const Prefix& next) { return next.weight <= weight; });
  const std::span<Token> tokens = gather(place.bucket);
  const Prefix part =
      select(tokens, place.before.weight, [weight](std::uint64_t before) { return before <= weight; });
  return TokenId{tokens[static_cast<std::size_t>(part.tokens) - 1].id};
}

}  // namespace moeflux
