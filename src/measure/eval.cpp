#include "measure/eval.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
#include <span>
#include <utility>

#include "base/check.h"
#include "engine/session.h"

namespace moeflux {
namespace {

static_assert(std::endian::native == std::endian::little, "logits are hashed as they lie in memory");

constexpr double kInfinity = std::numeric_limits<double>::infinity();

// Row `index` of a row-major matrix.
template <class T>
std::span<const T> row_of(const std::vector<T>& rows, std::uint64_t index, std::uint64_t cols) {
  return std::span(rows).subspan(index * cols, cols);
}

// Collects absolute differences. A number that is not finite, and a comparison of no numbers, is an infinite
// error.
class Differences {
 public:
  void add(double difference) {
    if (!std::isfinite(difference)) difference = kInfinity;
    max_ = std::max(max_, std::abs(difference));
    sum_ += std::abs(difference);
    ++count_;
  }
  void add(std::span<const float> found, std::span<const float> expected) {
    for (std::size_t i = 0; i < expected.size(); ++i) add(double{found[i]} - double{expected[i]});
  }
  double max() const { return count_ == 0 ? kInfinity : max_; }
  double mean() const { return count_ == 0 ? kInfinity : sum_ / static_cast<double>(count_); }

 private:
  double max_ = 0, sum_ = 0;
  std::uint64_t count_ = 0;
};

// Index of the largest number, the first among equals; nullopt if any number is not finite.
std::optional<std::uint32_t> largest_of(std::span<const float> row) {
  std::size_t largest = 0;
  for (std::size_t i = 0; i < row.size(); ++i) {
    if (!std::isfinite(row[i])) return std::nullopt;
    if (row[i] > row[largest]) largest = i;
  }
  return static_cast<std::uint32_t>(largest);
}

// Takes rows of logits in order of their positions and compares those that the golden has.
class LogitComparison {
 public:
  LogitComparison(const Golden& golden, std::uint32_t vocabulary)
      : golden_(golden), vocabulary_(vocabulary) {}

  void take(std::span<const float> row) {
    digest_.add(std::as_bytes(row));
    const auto best = largest_of(row);
    if (!best) errors_.add(kInfinity);  // even if the golden has no row
    const std::uint64_t position = position_++;
    const std::uint64_t prompt = golden_.input.size();
    if (position + 1 >= prompt && position + 1 < prompt + golden_.greedy.size())
      is_greedy_ = is_greedy_ && best == golden_.greedy[position + 1 - prompt].index();
    const std::span<const float> expected = expected_at(position);
    if (expected.empty()) return;
    errors_.add(row, expected);
    ++compared_;
    if (best && best == largest_of(expected)) ++agreed_;
  }

  EvalResult result() const {
    EvalResult result;
    result.max_logit_error = errors_.max();
    result.mean_logit_error = errors_.mean();
    result.top1_agreement = static_cast<double>(agreed_) / static_cast<double>(compared_);
    if (!golden_.greedy.empty()) result.greedy_match = is_greedy_;
    result.positions = golden_.logit_positions.size();
    result.logits_xxh3 = digest_.value();
    return result;
  }

 private:
  // The golden's row, or an empty span.
  std::span<const float> expected_at(std::uint64_t position) {
    if (position >= golden_.input.size()) {
      if (golden_.greedy_logits.empty()) return {};
      return row_of(golden_.greedy_logits, position - golden_.input.size(), vocabulary_);
    }
    if (next_row_ == golden_.logit_positions.size() || golden_.logit_positions[next_row_] != position)
      return {};
    return row_of(golden_.logits, next_row_++, vocabulary_);
  }

  const Golden& golden_;
  const std::uint32_t vocabulary_;
  std::uint64_t position_ = 0;
  std::size_t next_row_ = 0;  // of golden_.logits
  Differences errors_;
  std::uint64_t compared_ = 0, agreed_ = 0;
  bool is_greedy_ = true;
  DigestStream digest_;
};

// Runs every layer on the golden's hidden states and compares the outputs. All sessions of the batch are at
// the same positions of the same prompt.
class LayerComparison final : public StepObserver {
 public:
  LayerComparison(const Golden& golden, std::size_t layers) : golden_(golden), layers_(layers) {}

  // The positions of the next step.
  void begin(std::uint64_t first, std::uint64_t count) {
    first_ = first;
    count_ = count;
  }

  void saw(StepPoint point, LayerId layer, std::span<const float> rows, std::uint32_t cols) override {
    const bool is_last = layer.index() + 1 == layers_.size();
    if (point != (is_last ? StepPoint::final_norm : StepPoint::residual)) return;
    for (std::uint64_t i = 0; i < rows.size() / cols; ++i)
      layers_[layer.index()].hidden.add(rows.subspan(i * cols, cols),
                                        hidden_state(layer.index() + 1, i, cols));
  }

  void chose(LayerId layer, std::span<const std::uint32_t> experts, std::span<const float> weights,
             std::uint32_t experts_per_token) override {
    if (golden_.routers.empty()) return;
    const GoldenRouter& router = golden_.routers[layer.index()];
    const std::uint32_t expected = router.experts_per_token;
    if (expected == 0) return;
    Layer& errors = layers_[layer.index()];
    for (std::uint64_t i = 0; i < experts.size() / experts_per_token; ++i) {
      fill(found_, experts.subspan(i * experts_per_token, experts_per_token),
           weights.subspan(i * experts_per_token, experts_per_token));
      fill(expected_, row_of(router.experts, position(i), expected),
           row_of(router.weights, position(i), expected));
      compare_choices(errors);
    }
    errors.has_choices = true;
  }

  bool replace_residual(LayerId layer, std::span<float> rows, std::uint32_t cols) override {
    for (std::uint64_t i = 0; i < rows.size() / cols; ++i)
      std::ranges::copy(hidden_state(layer.index(), i, cols),
                        rows.begin() + static_cast<std::ptrdiff_t>(i * cols));
    return true;
  }

  std::vector<LayerErrors> result() const {
    std::vector<LayerErrors> all;
    for (std::uint32_t i = 0; i < layers_.size(); ++i) {
      LayerErrors& errors = all.emplace_back();
      errors.layer = LayerId(i);
      errors.max_hidden_error = layers_[i].hidden.max();
      if (!layers_[i].has_choices) continue;
      errors.router_ids_equal = layers_[i].are_ids_equal;
      errors.max_router_weight_error = layers_[i].weights.max();
    }
    return all;
  }

 private:
  struct Layer {
    Differences hidden, weights;
    bool has_choices = false;
    bool are_ids_equal = true;
  };
  using Choices = std::vector<std::pair<std::uint32_t, float>>;  // experts and weights, ascending

  // Choices of one row of the batch.
  std::uint64_t position(std::uint64_t row) const { return first_ + row % count_; }
  std::span<const float> hidden_state(std::uint64_t layer, std::uint64_t row, std::uint32_t cols) const {
    return row_of(golden_.hidden_states, layer * golden_.input.size() + position(row), cols);
  }

  static void fill(Choices& choices, std::span<const std::uint32_t> experts, std::span<const float> weights) {
    choices.clear();
    for (std::size_t i = 0; i < experts.size(); ++i) choices.emplace_back(experts[i], weights[i]);
    std::ranges::sort(choices, {}, &Choices::value_type::first);
  }

  void compare_choices(Layer& errors) const {
    auto found = found_.begin();
    auto expected = expected_.begin();
    while (found != found_.end() || expected != expected_.end()) {
      const bool is_found =
          expected == expected_.end() || (found != found_.end() && found->first <= expected->first);
      const bool is_expected =
          found == found_.end() || (expected != expected_.end() && expected->first <= found->first);
      const double weight = is_found ? (found++)->second : 0;
      errors.weights.add(weight - (is_expected ? (expected++)->second : 0));
      if (is_found != is_expected) errors.are_ids_equal = false;
    }
  }

  const Golden& golden_;
  std::vector<Layer> layers_;
  std::uint64_t first_ = 0, count_ = 1;
  Choices found_, expected_;
};

// The golden's session, and the others that run in the same steps.
class Batch {
 public:
  // The other sessions begin at other positions of the prompt and wrap around, as long as the first one runs.
  // Their logits are computed too, as a server would.
  static Result<Batch> with_rotated(Engine& engine, const Golden& golden, std::uint32_t count) {
    MF_TRY(Batch batch, create(engine, count));
    std::vector<TokenId>& own = batch.tokens_.emplace_back(golden.input);
    own.insert(own.end(), golden.greedy.begin(), golden.greedy.end());
    const std::size_t length = own.size();
    for (std::uint32_t i = 1; i < count; ++i) {
      std::vector<TokenId>& tokens = batch.tokens_.emplace_back();
      for (std::size_t at = 0; at < length; ++at)
        tokens.push_back(golden.input[(at + i) % golden.input.size()]);
    }
    batch.logits_of_others_.resize((std::size_t{count} - 1) * engine.config().vocabulary);
    return batch;
  }
  // The other sessions run the same prompt; only the first one's logits are computed.
  static Result<Batch> with_same(Engine& engine, const Golden& golden, std::uint32_t count) {
    MF_TRY(Batch batch, create(engine, count));
    batch.tokens_.assign(count, golden.input);
    return batch;
  }

  // Runs the tokens [first, first + count) of all sessions. logits: [count][vocabulary], of the first
  // session.
  Status step(std::size_t first, std::size_t count, std::span<float> logits, StepObserver* observer) {
    const std::size_t vocabulary = engine_->config().vocabulary;
    segments_.clear();
    for (std::size_t i = 0; i < sessions_.size(); ++i) {
      Segment& segment = segments_.emplace_back();
      segment.session = &sessions_[i];
      segment.tokens = std::span(tokens_[i]).subspan(first, count);
      if (i == 0) {
        segment.logits = WantedLogits::all;
        segment.out = logits;
      } else if (!logits_of_others_.empty()) {
        segment.logits = WantedLogits::last;
        segment.out = std::span(logits_of_others_).subspan((i - 1) * vocabulary, vocabulary);
      }
    }
    StepOptions options;
    options.observer = observer;
    MF_TRY_STATUS(engine_->step(segments_, options));
    return {};
  }

 private:
  explicit Batch(Engine& engine) : engine_(&engine) {}
  static Result<Batch> create(Engine& engine, std::uint32_t count) {
    Batch batch(engine);
    for (std::uint32_t i = 0; i < count; ++i) {
      MF_TRY(Session session, engine.new_session());
      batch.sessions_.push_back(std::move(session));
    }
    return batch;
  }

  Engine* engine_;
  std::vector<Session> sessions_;
  std::vector<std::vector<TokenId>> tokens_;  // per session
  std::vector<float> logits_of_others_;
  std::vector<Segment> segments_;
};

void require_fit(const Golden& golden, const ModelConfig& config) {
  const std::size_t positions = golden.input.size();
  MF_REQUIRE(positions > 0, "a golden has a prompt");
  MF_REQUIRE(!golden.logit_positions.empty() && golden.logit_positions.back() < positions &&
                 std::ranges::adjacent_find(golden.logit_positions, std::greater_equal()) ==
                     golden.logit_positions.end(),
             "the positions of logits are ascending ones of the prompt");
  MF_REQUIRE(golden.logits.size() == golden.logit_positions.size() * config.vocabulary,
             "there is a row of logits for each of their positions");
  MF_REQUIRE(
      golden.greedy_logits.empty() || golden.greedy_logits.size() == golden.greedy.size() * config.vocabulary,
      "there is a row of logits for each greedy id, or for none");
  MF_REQUIRE(golden.hidden_states.empty() ||
                 golden.hidden_states.size() == (config.layers.size() + 1) * positions * config.dim,
             "hidden states are those of every layer and position");
  MF_REQUIRE(golden.routers.empty() || golden.routers.size() == config.layers.size(),
             "there is one router per layer");
  for (const GoldenRouter& router : golden.routers)
    MF_REQUIRE(router.weights.size() == positions * router.experts_per_token &&
                   router.experts.size() == router.weights.size(),
               "a router has choices at every position");
}

}  // namespace

bool EvalResult::is_finite() const {
  return std::isfinite(max_logit_error) && std::isfinite(mean_logit_error) &&
         std::ranges::all_of(layers, [](const LayerErrors& errors) {
           return std::isfinite(errors.max_hidden_error) &&
                  std::isfinite(errors.max_router_weight_error.value_or(0));
         });
}

Result<EvalResult> evaluate(Engine& engine, const Golden& golden, const EvalOptions& options) {
  require_fit(golden, engine.config());
  MF_REQUIRE(options.batch > 0, "the golden's session is in the batch");
  if (options.layers && golden.hidden_states.empty())
    return Error(ErrorCode::invalid_argument,
                 "layers cannot be compared one by one: the golden has no hidden states");
  const std::size_t prompt = golden.input.size(), vocabulary = engine.config().vocabulary;
  const std::size_t chunk = options.chunk == 0 ? prompt : std::min<std::size_t>(options.chunk, prompt);
  std::vector<float> buffer(chunk * vocabulary);

  // Not Session::extend(): a batch of sessions takes each step, and every row of every session is compared.
  LogitComparison logits(golden, engine.config().vocabulary);
  {
    MF_TRY(Batch batch, Batch::with_rotated(engine, golden, options.batch));
    for (std::size_t at = 0; at < prompt + golden.greedy.size();) {
      const std::size_t count = at < prompt ? std::min(chunk, prompt - at) : 1;
      const std::span<float> rows = std::span(buffer).first(count * vocabulary);
      MF_TRY_STATUS(batch.step(at, count, rows, nullptr));
      for (std::size_t i = 0; i < count; ++i) logits.take(rows.subspan(i * vocabulary, vocabulary));
      at += count;
    }
  }
  EvalResult result = logits.result();
  if (!options.layers) return result;

  LayerComparison layers(golden, engine.config().layers.size());
  MF_TRY(Batch batch, Batch::with_same(engine, golden, options.batch));
  for (std::size_t at = 0; at < prompt; at += chunk) {
    const std::size_t count = std::min(chunk, prompt - at);
    layers.begin(at, count);
    MF_TRY_STATUS(batch.step(at, count, std::span(buffer).first(count * vocabulary), &layers));
  }
  result.layers = layers.result();
  return result;
}

}  // namespace moeflux
