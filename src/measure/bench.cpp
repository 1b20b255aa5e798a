#include "measure/bench.h"

#include <fmt/format.h>

#include <chrono>
#include <random>
#include <vector>

#include "engine/session.h"
#include "io/posix_file_system.h"
#include "io/process_memory.h"
#include "measure/memory_rate.h"
#include "measure/product_rate.h"

namespace moeflux {
namespace {

using Tokens = std::vector<TokenId>;

Tokens random_tokens(std::mt19937_64& random, std::uint32_t vocabulary, std::uint32_t count) {
  Tokens tokens;
  for (std::uint32_t i = 0; i < count; ++i)
    tokens.emplace_back(static_cast<std::uint32_t>(random() % vocabulary));
  return tokens;
}

// All resident weights except the rows of the embedding that no token looked up.
std::uint64_t touched_resident_bytes(const Engine& engine) {
  std::uint64_t bytes = engine.memory_plan().derived_bytes;
  for (const PackedTensor& tensor : engine.model().manifest().tensors)
    if (tensor.name != "embed_tokens" || engine.config().tied_embeddings) bytes += tensor.bytes;
  return bytes;
}

std::uint64_t mean_record_bytes(const Engine& engine) {
  std::uint64_t bytes = 0, count = 0;
  for (const ExpertFile& file : engine.model().manifest().experts)
    for (const ExpertRecord& record : file.records) {
      bytes += record.bytes;
      ++count;
    }
  return count == 0 ? 0 : bytes / count;
}

// At the middle of the decoded tokens.
std::uint64_t state_bytes_per_token(const Engine& engine, const BenchOptions& options) {
  const StateShape shape = state_shape_of(engine.config(), engine.options().kv_dtype);
  const std::uint64_t position = std::max(1u, options.prompt_tokens) + options.decode_tokens / 2;
  return 2 * shape.recurrent_bytes() + shape.kv_bytes(kKvBlockPositions) / kKvBlockPositions * position;
}

std::uint64_t size_of(const MatrixFormat& format) { return format.rows * format.cols; }

// Products with all matrices except the embedding and the output head: a prompt needs one row of logits, and
// the embedding is a lookup.
std::uint64_t products_per_token(const Engine& engine) {
  const Manifest& manifest = engine.model().manifest();
  std::uint64_t products = 0;
  for (const PackedTensor& tensor : manifest.tensors)
    if (tensor.layout == TensorLayout::tile16 && tensor.name != "embed_tokens" && tensor.name != "lm_head")
      products += size_of(tensor.format);
  std::uint64_t of_experts = 0;
  for (const ExpertFormat& format : manifest.expert_formats)
    of_experts += size_of(format.gate) + size_of(format.up) + size_of(format.down);
  if (!manifest.expert_formats.empty())
    products += manifest.experts.size() * engine.options().experts_per_token *
                (of_experts / manifest.expert_formats.size());
  return products;
}

// Measures the machine's limits at this moment.
class Probes {
 public:
  Probes(const Engine& engine, std::uint64_t bytes) : pool_(engine.threads()), kernels_(engine.kernels()) {
    if (const auto all = engine.resident_weights(); all.size() >= bytes) weights_ = all.first(bytes);
  }

  bool can_read() const { return !weights_.empty(); }
  // Reads the model's own weights: memory that exists already, in the pages that decoding reads.
  Result<double> read_bytes_per_second() { return measure_read_bytes_per_second(pool_, weights_, kPasses); }
  Result<double> products_per_second() { return measure_products_per_second(pool_, kernels_, kPasses); }

 private:
  static constexpr unsigned kPasses = 5;

  ThreadPool pool_;
  const KernelTable& kernels_;
  std::span<const std::byte> weights_;
};

// One phase of all counted rounds, and the machine's limit beside each.
struct Rates {
  std::vector<double> tokens;  // per second
  std::vector<double> limits;  // bytes or products per second; empty, or one per round
  StepStatistics steps;

  // `cost`: bytes or products per token.
  std::optional<BenchLimit> limit(std::uint64_t cost) const {
    if (limits.empty()) return std::nullopt;
    std::vector<double> fractions;
    for (std::size_t i = 0; i < tokens.size(); ++i)
      fractions.push_back(tokens[i] * static_cast<double>(cost) / limits[i]);
    return BenchLimit{median(limits), median(fractions)};
  }
};

class Rounds {
 public:
  Rounds(Engine& engine, const BenchOptions& options)
      : engine_(engine), options_(options), random_(options.seed) {
    if (options.compares) probes_.emplace(engine, options.read_weights_bytes);
    step_.cancel = options.cancel;
    step_.routing = options.routing;
  }

  Status run(bool counts) {
    std::vector<Session> sessions;
    for (std::uint32_t i = 0; i < options_.batch; ++i) {
      MF_TRY(Session session, engine_.new_session());
      sessions.push_back(std::move(session));
    }
    MF_TRY_STATUS(beside(
        probes_.has_value(), [&] { return probes_->products_per_second(); },
        [&] { return read_prompt(sessions.front(), counts); }, counts ? &prompt.limits : nullptr));
    for (std::size_t i = 1; i < sessions.size(); ++i) {
      MF_TRY(sessions[i], sessions.front().fork());
    }
    if (options_.decode_tokens == 0) return {};
    return beside(
        probes_ && probes_->can_read(), [&] { return probes_->read_bytes_per_second(); },
        [&] { return decode_tokens(sessions, counts); }, counts ? &decode.limits : nullptr);
  }

  Rates prompt, decode;

 private:
  // Runs the phase and appends to `limits` the mean of the probe before and after it.
  template <class Probe, class Phase>
  static Status beside(bool compares, Probe probe, Phase phase, std::vector<double>* limits) {
    if (!compares || limits == nullptr) return phase();
    MF_TRY(const double before, probe());
    MF_TRY_STATUS(phase());
    MF_TRY(const double after, probe());
    limits->push_back((before + after) / 2);
    return {};
  }

  std::uint32_t vocabulary() const { return engine_.config().vocabulary; }

  Status read_prompt(Session& session, bool counts) {
    const Tokens tokens = random_tokens(random_, vocabulary(), std::max(1u, options_.prompt_tokens));
    std::vector<float> logits(vocabulary());
    const auto began = std::chrono::steady_clock::now();
    MF_TRY(const StepStatistics steps, session.extend(tokens, logits, step_));
    const std::chrono::duration<double> took = std::chrono::steady_clock::now() - began;
    if (!counts) return {};
    prompt.steps += steps;
    prompt.tokens.push_back(static_cast<double>(tokens.size()) / took.count());
    return {};
  }

  Status decode_tokens(std::vector<Session>& sessions, bool counts) {
    std::vector<std::vector<float>> logits(sessions.size(), std::vector<float>(vocabulary()));
    const auto began = std::chrono::steady_clock::now();
    for (std::uint32_t i = 0; i < options_.decode_tokens; ++i) {
      const Tokens tokens = random_tokens(random_, vocabulary(), options_.batch);
      std::vector<Segment> batch;
      for (std::size_t s = 0; s < sessions.size(); ++s)
        batch.push_back({&sessions[s], std::span(tokens).subspan(s, 1), WantedLogits::last, logits[s]});
      MF_TRY(const StepStatistics steps, engine_.step(batch, step_));
      if (counts) decode.steps += steps;
    }
    const std::chrono::duration<double> took = std::chrono::steady_clock::now() - began;
    if (counts)
      decode.tokens.push_back(options_.decode_tokens * static_cast<double>(options_.batch) / took.count());
    return {};
  }

  Engine& engine_;
  const BenchOptions& options_;
  std::mt19937_64 random_;
  std::optional<Probes> probes_;
  StepOptions step_;
};

BenchPhase phase_of(std::uint64_t tokens, const Rates& rates) {
  BenchPhase phase;
  phase.tokens = tokens;
  if (!rates.tokens.empty()) phase.tokens_per_second = quartiles_of(rates.tokens);
  phase.steps = rates.steps;
  return phase;
}

}  // namespace

Result<BenchResult> run_bench(Engine& engine, const BenchOptions& options,
                              FunctionRef<void(std::uint32_t done, std::uint32_t all)> progress) {
  if (options.repeats == 0 || options.batch == 0)
    return Error(ErrorCode::invalid_argument, "a benchmark has at least one round and one session");
  const std::uint64_t needed = std::uint64_t{std::max(1u, options.prompt_tokens)} + options.decode_tokens;
  if (needed > engine.options().context)
    return Error(ErrorCode::context_full,
                 fmt::format("{} tokens do not fit into a context of {}", needed, engine.options().context));
  PosixFileSystem files;
  Rounds rounds(engine, options);
  const std::uint32_t all = options.warm_ups + options.repeats;
  std::uint64_t faults_before = 0;
  for (std::uint32_t i = 0; i < all; ++i) {
    progress(i, all);
    if (i == options.warm_ups) faults_before = read_process_memory(files).major_faults.value_or(0);
    MF_TRY_STATUS(rounds.run(i >= options.warm_ups));
  }
  progress(all, all);

  BenchResult result;
  result.major_faults = read_process_memory(files).major_faults.value_or(0) - faults_before;
  result.prompt = phase_of(std::max(1u, options.prompt_tokens), rounds.prompt);
  result.decode = phase_of(options.decode_tokens, rounds.decode);
  result.products_per_token = products_per_token(engine);
  result.compute = rounds.prompt.limit(result.products_per_token);
  const std::uint64_t rows = result.decode.steps.rows;
  // A batch reads the resident weights once for all of its rows.
  if (rows != 0)
    result.touched_bytes_per_token = (touched_resident_bytes(engine) * (rows / options.batch) +
                                      result.decode.steps.experts_served * mean_record_bytes(engine)) /
                                     rows;
  result.state_bytes_per_token = state_bytes_per_token(engine, options);
  result.memory = rounds.decode.limit(result.touched_bytes_per_token);
  return result;
}

}  // namespace moeflux
