#include "measure/perplexity.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <vector>

#include "base/check.h"
#include "base/tokens.h"
#include "engine/session.h"

namespace moeflux {
namespace {

// Rows of logits per step: 64 rows of 248,320 are 64 MB.
constexpr std::size_t kRowsAtOnce = 64;

// Sum and sum of squares of the negative log-likelihoods.
struct Costs {
  double sum = 0, squares = 0;
  std::uint64_t tokens = 0;
  std::vector<TokenId> likeliest{};

  void add(double cost) {
    sum += cost;
    squares += cost * cost;
    ++tokens;
  }
  PerplexityResult result(std::uint64_t windows) const {
    const double count = static_cast<double>(tokens), mean = sum / count;
    const double variance = tokens > 1 ? std::max(0.0, (squares - sum * mean) / (count - 1)) : 0;
    const double perplexity = std::exp(mean);
    return {perplexity, perplexity * std::sqrt(variance / count), tokens, windows, likeliest};
  }
};

// Scores the tokens from `first_scored` on, each by the logits of the token before it.
Status score_window(Engine& engine, std::span<const TokenId> window, std::size_t first_scored,
                    std::vector<float>& logits, const PerplexityOptions& options, Costs& costs) {
  const std::size_t vocabulary = engine.config().vocabulary;
  MF_TRY(Session session, engine.new_session());
  ExtendOptions extend{.step = {nullptr, options.cancel}};
  MF_TRY_STATUS(session.extend(window.first(first_scored - 1), {}, extend.step));
  extend.logits_of_step = logits;
  MF_TRY_STATUS(session.extend(window.subspan(first_scored - 1, window.size() - first_scored), {}, extend,
                               [&](const StepStatistics& step) -> Status {
                                 const std::size_t first = session.position() - step.rows;
                                 for (std::size_t row = 0; row < step.rows; ++row) {
                                   const std::span<const float> of_row =
                                       std::span(logits).subspan(row * vocabulary, vocabulary);
                                   costs.add(-log_likelihood(of_row, window[first + row + 1]));
                                   costs.likeliest.emplace_back(static_cast<std::uint32_t>(
                                       std::ranges::max_element(of_row) - of_row.begin()));
                                 }
                                 return {};
                               }));
  return {};
}

}  // namespace

double log_likelihood(std::span<const float> logits, TokenId token) {
  const double highest = *std::max_element(logits.begin(), logits.end());
  double sum = 0;
  for (const float logit : logits) sum += std::exp(double{logit} - highest);
  return double{logits[token.index()]} - highest - std::log(sum);
}

double agreement(const PerplexityResult& a, const PerplexityResult& b) {
  MF_REQUIRE(a.likeliest.size() == b.likeliest.size(), "both have scored the same text");
  std::size_t equal = 0;
  for (std::size_t i = 0; i < a.likeliest.size(); ++i) equal += a.likeliest[i] == b.likeliest[i] ? 1 : 0;
  return a.likeliest.empty() ? 1 : static_cast<double>(equal) / static_cast<double>(a.likeliest.size());
}

Result<PerplexityResult> measure_perplexity(Engine& engine, std::span<const TokenId> text,
                                            const PerplexityOptions& options,
                                            FunctionRef<void(std::uint64_t, std::uint64_t)> progress) {
  if (text.size() < 2)
    return Error{ErrorCode::invalid_argument,
                 fmt::format("the text has {} tokens, expected at least 2", text.size())};
  MF_TRY_STATUS(check_vocabulary(text, engine.config().vocabulary));
  if (options.window < 3 || options.window > engine.options().context)
    return Error{ErrorCode::invalid_argument, fmt::format("a window must have from 3 to {} tokens, found {}",
                                                          engine.options().context, options.window)};
  std::vector<float> logits(kRowsAtOnce * std::size_t{engine.config().vocabulary});
  Costs costs;
  if (text.size() <= options.window) {
    MF_TRY_STATUS(score_window(engine, text, 1, logits, options, costs));
    progress(1, 1);
    return costs.result(1);
  }
  const std::uint64_t windows = text.size() / options.window;
  for (std::uint64_t i = 0; i < windows; ++i) {
    const std::size_t first_scored = options.window / 2 + 1;
    MF_TRY_STATUS(score_window(engine, text.subspan(i * options.window, options.window), first_scored, logits,
                               options, costs));
    progress(i + 1, windows);
  }
  return costs.result(windows);
}

}  // namespace moeflux
