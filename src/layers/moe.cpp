#include "layers/moe.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <utility>

#include "base/check.h"
#include "base/overloaded.h"

namespace moeflux {

// The experts of each row, and the rows of each expert. In scratch memory.
struct Moe::Choices {
  std::uint32_t per_token;
  std::span<std::uint32_t> experts;   // [rows][per_token], ascending within a row
  std::span<float> weights;           // [rows][per_token]
  std::span<std::uint32_t> wanted;    // the chosen experts, ascending, each once
  std::span<std::uint32_t> first;     // [experts + 1]: expert e's visits are [first[e], first[e + 1])
  std::span<ExpertShare> shares;      // [rows][per_token]
  std::span<std::uint32_t> rows;      // by visit: the row,
  std::span<ExpertShare> row_shares;  // how the output is added to it,
  std::span<std::uint32_t> places;    // and the index of the choice: row * per_token + k

  Choices(Ops& ops, std::uint32_t row_count, std::uint32_t expert_count, std::uint32_t k)
      : per_token(k),
        experts(ops.take_host<std::uint32_t>(std::size_t{row_count} * k)),
        weights(ops.take_host<float>(experts.size())),
        wanted(ops.take_host<std::uint32_t>(std::min<std::size_t>(expert_count, experts.size()))),
        first(ops.take_host<std::uint32_t>(std::size_t{expert_count} + 1)),
        shares(ops.take_host<ExpertShare>(experts.size())),
        rows(ops.take_host<std::uint32_t>(experts.size())),
        row_shares(ops.take_host<ExpertShare>(experts.size())),
        places(ops.take_host<std::uint32_t>(experts.size())) {}

  // By the law, outputs are added in groups of experts.
  void set_shares(std::uint32_t expert_count) {
    const auto group = [&](std::size_t i) { return expert_group(experts[i], expert_count); };
    for (std::size_t i = 0; i < experts.size(); ++i) {
      const bool is_first = i % per_token == 0, is_last = (i + 1) % per_token == 0;
      shares[i] = {weights[i], is_first || group(i - 1) != group(i), is_last || group(i + 1) != group(i)};
    }
  }

  // A counting sort of the choices by expert; rows stay ascending.
  void sort_by_expert() {
    std::ranges::fill(first, 0u);
    for (const std::uint32_t expert : experts) ++first[expert + 1];
    std::size_t count = 0;
    for (std::uint32_t e = 0; e + 1 < first.size(); ++e) {
      if (first[e + 1] != 0) wanted[count++] = e;
      first[e + 1] += first[e];
    }
    wanted = wanted.first(count);
    for (std::size_t i = 0; i < experts.size(); ++i) {
      const std::uint32_t at = first[experts[i]]++;  // leaves every entry where the next expert begins,
      rows[at] = static_cast<std::uint32_t>(i / per_token);
      row_shares[at] = shares[i];
      places[at] = static_cast<std::uint32_t>(i);
    }
    for (std::size_t e = first.size() - 1; e > 0; --e) first[e] = first[e - 1];  // which this undoes
    first[0] = 0;
  }

  // Of row `from`, for `count` rows from `first_row` on.
  void copy_row(std::uint32_t from, std::uint32_t first_row, std::uint32_t count) {
    for (std::size_t i = 0; i < std::size_t{count} * per_token; ++i) {
      experts[std::size_t{first_row} * per_token + i] =
          experts[std::size_t{from} * per_token + i % per_token];
      weights[std::size_t{first_row} * per_token + i] =
          weights[std::size_t{from} * per_token + i % per_token];
    }
  }

  std::span<const std::uint32_t> of_row(std::uint32_t row) const {
    return experts.subspan(std::size_t{row} * per_token, per_token);
  }
  std::uint32_t count_of(std::uint32_t expert) const { return first[expert + 1] - first[expert]; }

  ExpertVisit visit(const Lease& lease) const {
    const std::uint32_t expert = lease.expert().index();
    const ExpertView& view = lease.view();
    return {view.gate,
            view.up,
            view.down,
            rows.subspan(first[expert], count_of(expert)),
            row_shares.subspan(first[expert], count_of(expert)),
            first[expert]};
  }
};

// Fails the segments with rows that chose no experts. All rows of a failed segment then have the choices of
// another segment's row, so that the layer fetches no expert for them. Returns false if there is none.
bool Moe::fail_segments(const Step& step, LayerId layer, Choices& choices) {
  std::optional<std::uint32_t> chosen_row;
  for (const StepSegment& segment : step.segments) {
    for (std::uint32_t row = 0; row < segment.rows() && !segment.has_failed(); ++row)
      if (choices.of_row(segment.first_row + row).front() == kNoExpert)
        segment.fail(
            Error(ErrorCode::corrupt_data,
                  fmt::format("layer {}: the router's logits of row {} are not finite", layer.index(), row)));
    if (!segment.has_failed()) chosen_row = segment.first_row;
  }
  if (!chosen_row) return false;
  for (const StepSegment& segment : step.segments)
    if (segment.has_failed()) choices.copy_row(*chosen_row, segment.first_row, segment.rows());
  return true;
}

Moe::Moe(const MoeConfig& config, const Weights& weights)
    : config_(config), router_(weights.matrix("mlp.gate")) {
  rule_.experts = config.experts;
  rule_.experts_per_token = config.experts_per_token;
  std::visit(overloaded{
                 [](const SoftmaxRouterConfig&) {},
                 [&](const GroupedSigmoidRouterConfig& router) {
                   rule_.grouped_sigmoid = true;
                   rule_.grouped = {router.groups, router.groups_kept, router.normalise,
                                    static_cast<float>(router.scale)};
                   rule_.bias = weights.vector("mlp.gate.e_score_correction_bias").data();
                 },
             },
             config.router);
  if (!config.shared) return;
  shared_.emplace(
      Shared{SwigluMlp(weights, config.shared->gated ? "mlp.shared_expert" : "mlp.shared_experts"), {}});
  if (config.shared->gated) shared_->gate = weights.matrix("mlp.shared_expert_gate");
}

Status Moe::forward(const Step& step, LayerId layer, const Input& x, Rows y) const {
  Ops& ops = step.ops;
  const Ops::Scope scope(ops);
  const bool is_sweep = sweeps(config_, step.rows, step.experts_per_token);
  Choices choices(ops, step.rows, config_.experts, choices_per_row(config_, step.experts_per_token));
  const Rows logits = ops.take(step.rows, config_.experts);
  const Rows shared = ops.take(step.rows, y.cols), gate = ops.take(step.rows, 1);

  // With few rows, one parallel region computes the router's logits and the shared expert's hidden rows, and
  // another the routed experts' hidden rows and the shared output. With many rows, experts are read while the
  // shared expert computes.
  Input hidden;
  {
    const TraceSpan span(step.trace, "router", layer.index());
    const Product router{router_, logits, Rounding::fine};
    if (is_sweep || !shared_)
      ops.matmul({&router, 1}, x);
    else
      hidden = shared_->hidden(ops, x, gate, &router);
    observe(step, StepPoint::router_logits, layer, logits);
    if (!choose(step, layer, logits, choices)) {
      ops.clear(y);
      return {};
    }
  }
  Fetch fetch =
      step.experts.begin(layer, choices.wanted, is_sweep ? FetchOrder::ascending : FetchOrder::ready_first);
  if (is_sweep) {
    if (shared_) {
      const TraceSpan span(step.trace, "shared expert", layer.index());
      const Ops::Scope computing(ops);
      ops.matmul(shared_->mlp.matrices().down, shared_->hidden(ops, x, gate), shared);
    }
    MF_TRY_STATUS(visit_ascending(step, fetch, choices, x, y));
  } else if (shared_) {
    const OwnProduct down{shared_->mlp.matrices().down, hidden, shared};
    MF_TRY_STATUS(visit_any_order(step, fetch, choices, x, &down, y));
  } else {
    MF_TRY_STATUS(visit_any_order(step, fetch, choices, x, nullptr, y));
  }
  if (shared_) observe(step, StepPoint::shared, layer, shared);
  observe(step, StepPoint::routed, layer, y);
  if (!shared_) return {};
  if (shared_->gate) {
    observe(step, StepPoint::shared_gate, layer, gate);
    ops.add_gated(y, shared, gate, y);
  } else {
    ops.add(y, shared, y);
  }
  return {};
}

Input Moe::Shared::hidden(Ops& ops, const Input& x, Rows score, const Product* router) const {
  if (router != nullptr && gate)
    return ops.hidden(mlp.matrices(), x, std::array{*router, Product{*gate, score}});
  if (router != nullptr) return ops.hidden(mlp.matrices(), x, {router, 1});
  if (gate) return ops.hidden(mlp.matrices(), x, std::array{Product{*gate, score}});
  return ops.hidden(mlp.matrices(), x);
}

bool Moe::choose(const Step& step, LayerId layer, Rows logits, Choices& choices) const {
  RouterRule rule = rule_;
  rule.experts_per_token = choices.per_token;
  if (step.ops.route(rule, logits, choices.experts, choices.weights) != 0 &&
      !fail_segments(step, layer, choices))
    return false;
  if (step.options.routing != nullptr)
    step.options.routing->choose(layer, config_.experts, choices.per_token, choices.experts, choices.weights);
  if (step.options.observer != nullptr)
    step.options.observer->chose(layer, choices.experts, choices.weights, choices.per_token);
  for (const StepSegment& segment : step.segments)
    if (segment.history != nullptr && !segment.has_failed())
      segment.history->record(layer, choices.of_row(segment.first_row + segment.rows() - 1));
  choices.set_shares(config_.experts);
  choices.sort_by_expert();
  return true;
}

Status Moe::visit_any_order(const Step& step, Fetch& fetch, const Choices& choices, const Input& x,
                            const OwnProduct* beside, Rows y) const {
  Ops& ops = step.ops;
  const Ops::Scope scope(ops);
  // Partial i is the output of visit i; `place_of_choice` maps a row's choices to their visits.
  const Rows partials = ops.take(static_cast<std::uint32_t>(choices.experts.size()), y.cols);
  const std::span<std::uint32_t> place_of_choice = ops.take_host<std::uint32_t>(choices.experts.size());
  for (std::uint32_t at = 0; at < choices.places.size(); ++at) place_of_choice[choices.places[at]] = at;

  std::array<std::optional<Lease>, kVisitsAtOnce> leases;
  std::array<ExpertVisit, kVisitsAtOnce> visits;
  const std::size_t limit = std::min<std::size_t>(kVisitsAtOnce, step.experts.lease_limit());
  while (true) {
    std::size_t count = 0;
    while (count < limit && (count == 0 || fetch.is_one_ready())) {
      MF_TRY(std::optional<Lease> lease, fetch.next());
      if (!lease) break;
      visits[count] = choices.visit(*lease);
      leases[count++] = std::move(lease);
    }
    if (count == 0) break;
    const TraceSpan span(step.trace, "experts", fetch.layer().index());
    // Also submits reads that are due: Ops calls ExpertSource::advance_reads after every product.
    ops.visit(std::span(visits).first(count), x, partials, std::exchange(beside, nullptr));
    for (std::size_t i = 0; i < count; ++i) leases[i].reset();
  }
  ops.combine(partials, place_of_choice, choices.shares, choices.per_token, y);
  return {};
}

Status Moe::visit_ascending(const Step& step, Fetch& fetch, const Choices& choices, const Input& x,
                            Rows y) const {
  Ops& ops = step.ops;
  const Ops::Scope scope(ops);
  const Rows sums = ops.take(step.rows, y.cols);
  ops.clear(y);
  // Visits all ready experts together, but at most as many rows as the step has: scratch memory is planned
  // for that number.
  std::array<std::optional<Lease>, kVisitsAtOnce> leases;
  std::array<ExpertVisit, kVisitsAtOnce> visits;
  const std::size_t limit = std::min<std::size_t>(kVisitsAtOnce, step.experts.lease_limit());
  std::size_t count = 0;
  std::uint32_t rows = 0;
  const auto visit_all = [&] {
    const TraceSpan span(step.trace, "experts", fetch.layer().index());
    // Also submits reads that are due, as in visit_any_order().
    ops.visit_adding(std::span(visits).first(count), x, sums, y);
    for (std::size_t i = 0; i < count; ++i) leases[i].reset();
    count = rows = 0;
  };
  while (true) {
    if (count == limit || (count != 0 && !fetch.is_one_ready())) visit_all();
    MF_TRY(std::optional<Lease> lease, fetch.next());
    if (!lease) break;
    const ExpertVisit visit = choices.visit(*lease);
    const auto more = static_cast<std::uint32_t>(visit.rows.size());
    if (rows + more > step.rows) visit_all();
    visits[count] = visit;
    leases[count++] = std::move(lease);
    rows += more;
  }
  if (count != 0) visit_all();
  return {};
}

}  // namespace moeflux
