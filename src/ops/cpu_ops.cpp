#include "ops/cpu_ops.h"

#include <fmt/format.h>

#include <atomic>
#include <cstring>
#include <limits>
#include <utility>

#include "base/check.h"

namespace moeflux {

CpuOps::CpuOps(ThreadPool& pool, const KernelTable& kernels, Workspace workspace, Precision precision)
    : Ops(std::move(workspace)),
      precision_(precision),
      pool_(&pool),
      kernels_(&kernels),
      wants_prefetch_(wants_prefetch()),
      threads_(pool.threads()) {}

CpuOps::CpuOps(unsigned measured_threads, Precision precision)
    : Ops(Workspace::measuring()), precision_(precision), threads_(measured_threads) {}

void CpuOps::region(std::uint64_t count,
                    FunctionRef<void(std::uint64_t begin, std::uint64_t end, unsigned worker)> body) {
  if (is_measuring() || count == 0) return;
  if (count == 1)
    body(0, 1, 0);  // no other thread needs to wake up
  else
    pool_->parallel_for(count, body);
}

void CpuOps::each_task(std::uint64_t tasks, FunctionRef<void(std::uint32_t task, unsigned worker)> body) {
  if (!is_measuring()) pool_->run_pieces(static_cast<std::uint32_t>(tasks), body);
}

void CpuOps::each_share(std::span<const Share> shares, ShareBody body) {
  if (is_measuring()) return;
  std::uint64_t tasks = 0, total = 0;
  for (const Share& share : shares) {
    tasks += share.tasks;
    total += share.tasks * share.cost;
  }
  const auto parts = static_cast<std::uint32_t>(std::min<std::uint64_t>(tasks, most_parts()));
  each_task(parts, [&](std::uint32_t part, unsigned worker) {
    const std::uint64_t begin = total * part / parts, end = total * (part + 1) / parts;
    std::uint64_t start = 0;  // of the share
    for (std::size_t i = 0; i < shares.size(); ++i) {
      const std::uint64_t count = shares[i].tasks, cost = shares[i].cost;
      const auto task_at = [&](std::uint64_t place) {  // the first task that begins at or after `place`
        return place <= start ? 0 : std::min(count, divide_up(place - start, cost));
      };
      if (const std::uint64_t from = task_at(begin), to = task_at(end); from < to) body(i, from, to, worker);
      start += count * cost;
    }
  });
}

void CpuOps::each_row(std::uint32_t rows, FunctionRef<void(std::uint32_t row)> body) {
  region(rows, [&](std::uint64_t begin, std::uint64_t end, unsigned) {
    for (std::uint64_t row = begin; row < end; ++row) body(static_cast<std::uint32_t>(row));
  });
}

void CpuOps::each_head(const Heads& heads, FunctionRef<void(std::uint32_t row, std::uint32_t head)> body) {
  region(std::uint64_t{heads.count} * heads.heads, [&](std::uint64_t begin, std::uint64_t end, unsigned) {
    for (std::uint64_t i = begin; i < end; ++i)
      body(static_cast<std::uint32_t>(i / heads.heads), static_cast<std::uint32_t>(i % heads.heads));
  });
}

void CpuOps::embed(const TiledMatrix& table, std::span<const TokenId> tokens, Rows out) {
  MF_REQUIRE(tokens.size() == out.count && table.cols == out.cols, "one row per token");
  each_row(out.count, [&](std::uint32_t row) {
    tile16::decode_row(table, tokens[row].index(), {out.row(row), out.cols});
  });
}

void CpuOps::rms_norm(Rows x, std::span<const float> weight, float eps, Rows y) {
  MF_REQUIRE(x.count == y.count && x.cols == y.cols && weight.size() == x.cols, "the shapes agree");
  each_row(x.count, [&](std::uint32_t row) {
    kernels_->rows->rms_norm(x.row(row), weight.data(), x.cols, eps, y.row(row));
  });
}

Input CpuOps::norm_and_prepare(Rows x, std::span<const float> weight, float eps, Rounding finest, Rows y) {
  MF_REQUIRE(x.count == y.count && x.cols == y.cols && weight.size() == x.cols, "the shapes agree");
  const Input input = y.cols % kSumCols == 0 ? take_prepared(y, finest) : Input{y};
  each_row(x.count, [&](std::uint32_t row) {
    kernels_->rows->rms_norm(x.row(row), weight.data(), x.cols, eps, y.row(row));
    prepare_part(input, row, 0, y.cols);
  });
  return input;
}

void CpuOps::rms_norm(Heads x, std::span<const float> weight, float eps, Heads y) {
  MF_REQUIRE(weight.size() == x.dim && x.dim == y.dim, "the shapes agree");
  each_head(x, [&](std::uint32_t row, std::uint32_t head) {
    kernels_->rows->rms_norm(x.head(row, head), weight.data(), x.dim, eps, y.head(row, head));
  });
}

void CpuOps::gated_rms_norm(Heads x, std::span<const float> weight, Heads gate, float eps, Heads y) {
  MF_REQUIRE(weight.size() == x.dim && x.dim == gate.dim && x.dim == y.dim, "the shapes agree");
  each_head(x, [&](std::uint32_t row, std::uint32_t head) {
    kernels_->rows->gated_rms_norm(x.head(row, head), weight.data(), gate.head(row, head), x.dim, eps,
                                   y.head(row, head));
  });
}

void CpuOps::l2_norm(Heads x, float eps, float scale, Heads y) {
  each_head(x, [&](std::uint32_t row, std::uint32_t head) {
    kernels_->rows->l2_norm(x.head(row, head), x.dim, eps, scale, y.head(row, head));
  });
}

void CpuOps::rope(Heads x, const RopeTable& table, RopePairing pairing) {
  MF_REQUIRE(x.dim == 2 * table.cos.cols && x.count == table.cos.count, "a pair of channels has an angle");
  each_head(x, [&](std::uint32_t row, std::uint32_t head) {
    const RowKernels& rows = *kernels_->rows;
    (pairing == RopePairing::half_split ? rows.rope_half : rows.rope_interleaved)(
        x.head(row, head), table.cos.row(row), table.sin.row(row), table.cos.cols);
  });
}

void CpuOps::add(Rows x, Rows a, Rows y) {
  each_row(x.count,
           [&](std::uint32_t row) { kernels_->rows->add(x.row(row), a.row(row), x.cols, y.row(row)); });
}

void CpuOps::add_gated(Rows x, Rows a, Rows gate, Rows y) {
  MF_REQUIRE(gate.cols == 1, "one gate per row");
  each_row(x.count, [&](std::uint32_t row) {
    float open = 0;
    kernels_->rows->sigmoid(gate.row(row), 1, &open);
    kernels_->rows->add_scaled(x.row(row), a.row(row), open, x.cols, y.row(row));
  });
}

void CpuOps::sigmoid_gate(Heads x, Heads gate, Heads y) {
  each_head(x, [&](std::uint32_t row, std::uint32_t head) {
    kernels_->rows->sigmoid_gate(x.head(row, head), gate.head(row, head), x.dim, y.head(row, head));
  });
}

std::uint32_t CpuOps::route(const RouterRule& rule, Rows logits, std::span<std::uint32_t> experts,
                            std::span<float> weights) {
  const std::uint32_t k = rule.experts_per_token;
  MF_REQUIRE(logits.cols == rule.experts, "one logit per expert");
  MF_REQUIRE(experts.size() == std::uint64_t{logits.count} * k && weights.size() == experts.size(),
             "room for every row's choices");
  const Scope scope(*this);
  const std::size_t scratch_size = grouped_scratch(rule.experts);
  const std::span<float> scratch = take_host<float>(scratch_size * threads_);
  if (is_measuring()) {
    for (std::size_t i = 0; i < experts.size(); ++i) experts[i] = static_cast<std::uint32_t>(i % k);
    return 0;
  }
  std::atomic<std::uint32_t> not_finite = 0;
  region(logits.count, [&](std::uint64_t begin, std::uint64_t end, unsigned worker) {
    const std::span<float> mine = scratch.subspan(worker * scratch_size, scratch_size);
    for (std::uint64_t row = begin; row < end; ++row) {
      const std::span<const float> scores(logits.row(row), rule.experts);
      const std::span<std::uint32_t> ids = experts.subspan(row * k, k);
      const std::span<float> shares = weights.subspan(row * k, k);
      const bool chosen = rule.grouped_sigmoid
                              ? choose_grouped_sigmoid(*kernels_->rows, rule.grouped, scores,
                                                       {rule.bias, rule.experts}, mine, ids, shares)
                              : choose_softmax(*kernels_->rows, scores, mine, ids, shares);
      if (chosen) continue;
      std::ranges::fill(ids, kNoExpert);
      std::ranges::fill(shares, 0.0f);
      not_finite.fetch_add(1, std::memory_order_relaxed);
    }
  });
  return not_finite;
}

void CpuOps::clear(Rows y) {
  each_row(y.count, [&](std::uint32_t row) { std::memset(y.row(row), 0, y.cols * sizeof(float)); });
}

void CpuOps::copy(Heads x, Heads y) {
  MF_REQUIRE(x.count == y.count && x.heads == y.heads && x.dim == y.dim, "the shapes agree");
  each_head(x, [&](std::uint32_t row, std::uint32_t head) {
    std::memcpy(y.head(row, head), x.head(row, head), x.dim * sizeof(float));
  });
}

void CpuOps::read(Rows from, std::span<float> to) {
  MF_REQUIRE(to.size() == std::uint64_t{from.count} * from.cols, "room for all rows");
  if (is_measuring()) return;
  for (std::uint32_t row = 0; row < from.count; ++row)
    std::memcpy(to.data() + std::uint64_t{row} * from.cols, from.row(row), from.cols * sizeof(float));
}

void CpuOps::write(std::span<const float> from, Rows to) {
  MF_REQUIRE(from.size() == std::uint64_t{to.count} * to.cols, "all rows are given");
  if (is_measuring()) return;
  for (std::uint32_t row = 0; row < to.count; ++row)
    std::memcpy(to.row(row), from.data() + std::uint64_t{row} * to.cols, to.cols * sizeof(float));
}

}  // namespace moeflux
