#include "measure/mixed_bench.h"

#include <chrono>
#include <random>
#include <span>
#include <vector>

#include "engine/session.h"
#include "measure/quantiles.h"

namespace moeflux {
namespace {

using Tokens = std::vector<TokenId>;

Tokens random_tokens(std::mt19937_64& random, const Engine& engine, std::size_t count) {
  Tokens tokens;
  for (std::size_t i = 0; i < count; ++i)
    tokens.emplace_back(static_cast<std::uint32_t>(random() % engine.config().vocabulary));
  return tokens;
}

// Runs a step and returns the seconds that it took.
Result<double> time_step(Engine& engine, std::span<const Segment> batch, const StepOptions& options) {
  const auto began = std::chrono::steady_clock::now();
  MF_TRY_STATUS(engine.step(batch, options));
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - began).count();
}

}  // namespace

Result<MixedResult> run_mixed_bench(Engine& engine, const MixedOptions& options) {
  if (options.chunk_rows == 0 || options.decodes == 0 || options.repeats == 0)
    return Error(ErrorCode::invalid_argument, "a mixed step has a chunk and decodes, measured at least once");
  std::mt19937_64 random(options.seed);
  const StepOptions step{.cancel = options.cancel};
  std::vector<float> logits(engine.config().vocabulary);
  MF_TRY(Session first, engine.new_session());
  MF_TRY_STATUS(first.extend(random_tokens(random, engine, options.decode_position), {}, step));
  std::vector<Session> sessions;
  for (std::uint32_t i = 0; i < options.decodes; ++i) {
    MF_TRY(Session session, first.fork());
    sessions.push_back(std::move(session));
  }

  std::vector<double> chunk_seconds, decode_seconds, both_seconds, ratios;
  for (std::uint32_t round = 0; round <= options.repeats; ++round) {
    const Tokens chunk = random_tokens(random, engine, options.chunk_rows);
    const Tokens singles = random_tokens(random, engine, 2 * std::size_t{options.decodes});
    std::vector<std::vector<float>> rows(options.decodes, logits);
    const auto add_decodes = [&](std::size_t at, std::vector<Segment>& batch) {
      for (std::size_t i = 0; i < sessions.size(); ++i)
        batch.push_back({&sessions[i], std::span(singles).subspan(at + i, 1), WantedLogits::last, rows[i]});
    };
    MF_TRY(Session alone, engine.new_session());
    MF_TRY(Session beside, engine.new_session());
    std::vector<Segment> decodes, both = {{&beside, chunk, WantedLogits::last, logits}};
    add_decodes(0, decodes);
    add_decodes(options.decodes, both);
    const Segment of_chunk{&alone, chunk, WantedLogits::last, logits};
    MF_TRY(const double chunk_took, time_step(engine, {&of_chunk, 1}, step));
    MF_TRY(const double decodes_took, time_step(engine, decodes, step));
    MF_TRY(const double both_took, time_step(engine, both, step));
    if (round == 0) continue;  // warm-up
    chunk_seconds.push_back(chunk_took);
    decode_seconds.push_back(decodes_took);
    both_seconds.push_back(both_took);
    ratios.push_back(both_took / (chunk_took + decodes_took));
  }
  return MixedResult{median(chunk_seconds), median(decode_seconds), median(both_seconds), median(ratios)};
}

}  // namespace moeflux
