#pragma once
// The operations that layers are made of, on batches of rows.
//
// A layer is a short sequence of calls to Ops, in the order of its published formulas. Ops decides where and
// on how many threads they run; the law (kernel_table.h) fixes what they compute, for any batch, thread count
// and instruction set. Only two things return to the caller: the router's choices and what read() copies.
//
// CpuOps (cpu_ops.h) is a thread pool and a table of kernels. Layers never look at an activation, so it can
// also run them with neither, to measure how much scratch memory they need.
//
// The composite operations (norm_and_prepare, mix_delta, mix_attention) are sequences of the others. Ops runs
// them as such, which defines their result; an implementation may do the same work in fewer passes.
//
// Scratch: memory from take() is valid until the innermost open Scope ends. Nothing here allocates. One
// thread at a time.

#include <cstddef>
#include <cstdint>
#include <functional>
#include <initializer_list>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

#include "base/ids.h"
#include "base/memory/aligned_buffer.h"
#include "base/memory/workspace.h"
#include "base/result.h"
#include "kernels/views.h"
#include "ops/router.h"
#include "quant/kv_dtype.h"
#include "quant/rope_pairing.h"
#include "quant/tile16.h"

namespace moeflux {

using tile16::TiledMatrix;

// exact: float32 products of the weights as stored. fast: activations are quantized to 8 bits in groups.
enum class Precision { exact, fast };
std::string_view name_of(Precision precision);

// cos and sin of every row's position, for the pairs of channels that rotate: [rows][pairs].
struct RopeTable {
  Rows cos, sin;
};

// Width of quantized activations in the precision `fast`: 8 bits (coarse), or 16 (fine) where a small
// difference decides something instead of adding to a sum: the router's choice, the next token.
enum class Rounding { coarse, fine };

// y = x W^T, where several products share x.   w: [y.cols, x.cols]
struct Product {
  const TiledMatrix& w;
  Rows y;
  Rounding rounding = Rounding::coarse;
};

// A resident SwiGLU MLP.
struct MlpMatrices {
  TiledMatrix gate, up;  // [hidden, dim]
  TiledMatrix down;      // [dim, hidden]
};

// y = x W^T, with its own x.
struct OwnProduct {
  const TiledMatrix& w;
  const Input& x;
  Rows y;
};

// One matrix per head, all of one shape.
struct HeadMatrices {
  TiledMatrix first;  // of head 0
  std::uint32_t heads = 0;
  std::uint64_t stride = 0;  // in bytes, from head to head

  TiledMatrix of(std::uint64_t head) const {
    TiledMatrix matrix = first;
    matrix.first_block += head * stride;
    return matrix;
  }
};

// Keys and values of a block of kAttentionBlock positions of a session; each is [heads][256][words per row].
struct KvBlockView {
  float* keys = nullptr;
  float* values = nullptr;  // null: a value is the leading channels of its key
};

// The rows of a batch that belong to one session.
struct SegmentRows {
  std::uint32_t first_row = 0, rows = 0;
};

// A segment, and the keys and values of its session.
struct KvSegment : SegmentRows {
  std::uint32_t position = 0;           // of the first row
  std::span<const KvBlockView> blocks;  // cover position + rows
  KvDtype dtype = KvDtype::f32;         // one dtype for all segments of a step
};

struct AttentionShape {
  std::uint32_t heads = 0, kv_heads = 0;
  std::uint32_t key_dim = 0, value_dim = 0;
  float scale = 0;
};

// A segment, and a recurrent state of its session before and after its rows.
struct RecurrentSegment : SegmentRows {
  const float* before = nullptr;
  float* after = nullptr;  // not `before`
};

struct DeltaRuleShape {
  std::uint32_t key_heads = 0, value_heads = 0;
  std::uint32_t key_dim = 0, value_dim = 0;  // of a head

  std::uint32_t all_keys() const { return key_heads * key_dim; }
  std::uint32_t all_values() const { return value_heads * value_dim; }
  // What the convolution runs over: queries, keys, values.
  std::uint32_t channels() const { return 2 * all_keys() + all_values(); }
};

// What a gated DeltaNet layer does between its projections; see Ops::mix_delta.
struct DeltaMix {
  DeltaRuleShape shape;
  std::span<const float> conv_weight;  // [channels][conv_width]
  std::uint32_t conv_width = 0;
  std::span<const float> rate, dt_bias;  // [value_heads]
  float unit_eps = 0, query_scale = 0;   // of queries and keys of unit length
  std::span<const float> norm;           // [value_dim]
  float norm_eps = 0;
};

// What a gated attention layer does between its projections; see Ops::mix_attention.
struct AttentionMix {
  AttentionShape shape;
  std::span<const float> query_norm, key_norm;  // [key_dim]
  float norm_eps = 0;
  std::uint32_t rope_dims = 0;  // leading channels of a head that rotate
  RopePairing pairing = RopePairing::half_split;
};

// What a row chooses if its router's logits are not finite.
inline constexpr std::uint32_t kNoExpert = ~0u;

// How a router turns logits into choices.
struct RouterRule {
  bool grouped_sigmoid = false;  // else: softmax
  GroupedChoice grouped;
  const float* bias = nullptr;  // grouped_sigmoid: [experts]
  std::uint32_t experts = 0;
  std::uint32_t experts_per_token = 0;
};

// The routed experts of a layer form this many groups of neighboring ids. A row's outputs are added within a
// group and then group by group (docs/arithmetic.md), so the sum of a group can be computed anywhere.
inline constexpr std::uint32_t kExpertGroups = 8;
// The group of expert `expert` of `experts`.
constexpr std::uint32_t expert_group(std::uint32_t expert, std::uint32_t experts) {
  return static_cast<std::uint32_t>(std::uint64_t{expert} * kExpertGroups / experts);
}

// How the output of one of a row's experts is added: sum = fma(weight, output, sum), where the sum begins at
// zero with the first expert of a group, and is added to the row after the last one.
struct ExpertShare {
  float weight = 0;
  bool begins_group = false, ends_group = false;
};

// Most experts in one call of visit() or visit_adding().
inline constexpr std::size_t kVisitsAtOnce = 32;

// One expert and the rows of a batch that visit it.
struct ExpertVisit {
  TiledMatrix gate, up, down;
  std::span<const std::uint32_t> rows;  // rows of the batch, ascending; not empty
  std::span<const ExpertShare> shares;  // visit_adding: one per row
  std::uint32_t first_partial = 0;      // visit: row of `partials` for the first output; the others follow
};

// Work since construction, counted when it is started.
struct OpsCounters {
  std::uint64_t matrix_calls = 0;   // products of a batch with a resident matrix
  std::uint64_t expert_visits = 0;  // experts multiplied by their rows
  friend bool operator==(const OpsCounters&, const OpsCounters&) = default;
};

class Ops {
 public:
  virtual ~Ops() = default;
  Ops(const Ops&) = delete;
  Ops& operator=(const Ops&) = delete;

  // Returns the memory that was taken during its lifetime.
  class Scope {
   public:
    explicit Scope(Ops& ops)
        : ops_(ops), scope_(ops.workspace_), measured_host_before_(ops.measured_host_.size()) {}
    ~Scope() { ops_.measured_host_.resize(measured_host_before_); }

   private:
    Ops& ops_;
    Workspace::Scope scope_;
    std::size_t measured_host_before_;
  };
  Rows take(std::uint32_t count, std::uint32_t cols);
  // Memory that the caller itself reads and writes: ids, weights, tables.
  template <class T>
  std::span<T> take_host(std::size_t count) {
    const std::span<T> taken = workspace_.take<T>(count);
    if (!workspace_.is_measuring()) return taken;
    // NOLINTNEXTLINE(bugprone-sizeof-expression): T may be a pointer
    return {reinterpret_cast<T*>(measured_host(count * sizeof(T))), count};
  }

  // `hook` runs on the calling thread after every product. The engine passes ExpertSource::advance_reads,
  // so that reads of experts progress while layers compute.
  void set_after_product(std::function<void()> hook) { after_product_ = std::move(hook); }

  const OpsCounters& counters() const { return counters_; }
  const Workspace& workspace() const { return workspace_; }

  // out[i] = row tokens[i] of `table`.
  virtual void embed(const TiledMatrix& table, std::span<const TokenId> tokens, Rows out) = 0;
  // Computes what matrix products need beside x, for products up to the rounding `finest`, in scratch memory.
  virtual Input prepare(Rows x, Rounding finest = Rounding::coarse) = 0;
  void matmul(std::span<const Product> products, const Input& x) {
    counters_.matrix_calls += products.size();
    run_matmul(products, x);
    if (after_product_) after_product_();
  }
  void matmul(std::initializer_list<Product> products, const Input& x) {
    matmul(std::span(products.begin(), products.size()), x);
  }
  void matmul(const TiledMatrix& w, const Input& x, Rows y) { matmul({{w, y}}, x); }
  // y = (silu(x gate^T) * (x up^T)) down^T.
  void mlp(const MlpMatrices& w, const Input& x, Rows y) { matmul(w.down, hidden(w, x), y); }
  // silu(x gate^T) * (x up^T), prepared for the product with `down`. `beside`: more products that share x.
  Input hidden(const MlpMatrices& w, const Input& x, std::span<const Product> beside = {}) {
    counters_.matrix_calls += 2 + beside.size();
    const Input result = run_hidden(w, x, beside);
    if (after_product_) after_product_();
    return result;
  }
  // y[i][h] = W_h x[i][h].
  void head_matmul(const HeadMatrices& w, const Heads& x, const Heads& y) {
    ++counters_.matrix_calls;
    run_head_matmul(w, x, y);
    if (after_product_) after_product_();
  }
  // y[i][h] = transposed W_h x[i][h].
  void head_matmul_transposed(const HeadMatrices& w, const Heads& x, const Heads& y) {
    ++counters_.matrix_calls;
    run_head_matmul_transposed(w, x, y);
    if (after_product_) after_product_();
  }

  virtual void rms_norm(Rows x, std::span<const float> weight, float eps, Rows y) = 0;
  virtual void rms_norm(Heads x, std::span<const float> weight, float eps, Heads y) = 0;
  virtual void gated_rms_norm(Heads x, std::span<const float> weight, Heads gate, float eps, Heads y) = 0;
  virtual void l2_norm(Heads x, float eps, float scale, Heads y) = 0;
  virtual void rope(Heads x, const RopeTable& table, RopePairing pairing) = 0;

  virtual void add(Rows x, Rows a, Rows y) = 0;
  // y = fma(sigmoid(gate), a, x); gate: [.., 1].
  virtual void add_gated(Rows x, Rows a, Rows gate, Rows y) = 0;
  virtual void sigmoid_gate(Heads x, Heads gate, Heads y) = 0;

  // Stores the segments' keys and values in their blocks. `values` is empty if the blocks have none.
  virtual void append(std::span<const KvSegment> segments, Heads keys, Heads values) = 0;
  // Causal attention: each query attends to all positions of its segment's session up to its own.
  virtual void attend(std::span<const KvSegment> segments, const AttentionShape& shape, Heads queries,
                      Heads y) = 0;

  // weight: [x.cols][width]; a state is [width - 1][x.cols].
  virtual void conv(std::span<const RecurrentSegment> segments, Rows x, std::span<const float> weight,
                    std::uint32_t width, Rows y) = 0;
  virtual void decay_beta(Rows a, Rows b, std::span<const float> rate, std::span<const float> dt_bias,
                          Rows decay, Rows beta) = 0;
  // A state is [value_heads][key_dim x value_dim], in the layout of quant/delta_state.h.
  virtual void delta_rule(std::span<const RecurrentSegment> segments, const DeltaRuleShape& shape,
                          Heads queries, Heads keys, Heads values, Rows decay, Rows beta, Heads y) = 0;

  // Writes each row's experts, ascending, and their weights: [rows][experts_per_token]. A row with a logit
  // that is not finite gets kNoExpert with weights of zero. Returns the number of such rows.
  virtual std::uint32_t route(const RouterRule& rule, Rows logits, std::span<std::uint32_t> experts,
                              std::span<float> weights) = 0;
  // For few rows, with experts in any order: stores the experts' outputs in `partials`, for combine().
  // `beside`: a product with another input that runs at the same time.
  void visit(std::span<const ExpertVisit> visits, const Input& x, Rows partials,
             const OwnProduct* beside = nullptr) {
    counters_.expert_visits += visits.size();
    if (beside != nullptr) ++counters_.matrix_calls;
    run_visit(visits, x, partials, beside);
    if (after_product_) after_product_();
  }
  // y[i] = the outputs partials[places[i][k]] of the row's experts, k ascending, added by shares[i][k].
  virtual void combine(Rows partials, std::span<const std::uint32_t> places,
                       std::span<const ExpertShare> shares, std::uint32_t per_token, Rows y) = 0;
  // For many rows, with experts in ascending order: adds their outputs by their shares. y begins at zero, and
  // `sums` keeps the sums of groups between calls: [y.count][y.cols].
  void visit_adding(std::span<const ExpertVisit> visits, const Input& x, Rows sums, Rows y) {
    counters_.expert_visits += visits.size();
    run_visit_adding(visits, x, sums, y);
    if (after_product_) after_product_();
  }
  virtual void clear(Rows y) = 0;
  virtual void copy(Heads x, Heads y) = 0;

  // ---- Composite operations ----
  // y = rms_norm(x), and prepare(y).
  virtual Input norm_and_prepare(Rows x, std::span<const float> weight, float eps, Rounding finest, Rows y);
  // Gated DeltaNet: the convolution of qkv, queries and keys of unit length, decay and beta, the delta rule
  // and the gated norm, prepared for the output projection. Overwrites a and b.
  //   qkv: [rows][channels]   gate: [rows][all_values]   a, b: [rows][value_heads]
  virtual Input mix_delta(const DeltaMix& mix, std::span<const RecurrentSegment> conv_states,
                          std::span<const RecurrentSegment> delta_states, Rows qkv, Rows gate, Rows a,
                          Rows b);
  // Gated attention: norms and rotation of queries and keys, append, attend and the sigmoid gate, prepared
  // for the output projection. Overwrites queries and keys.
  virtual Input mix_attention(const AttentionMix& mix, std::span<const KvSegment> segments,
                              const RopeTable& rope, Heads queries, Heads gates, Heads keys, Heads values);

  // Copy activations to the caller's memory and back.
  virtual void read(Rows from, std::span<float> to) = 0;
  virtual void write(std::span<const float> from, Rows to) = 0;

 protected:
  explicit Ops(Workspace workspace) : workspace_(std::move(workspace)) {}

 private:
  virtual void run_matmul(std::span<const Product> products, const Input& x) = 0;
  virtual Input run_hidden(const MlpMatrices& w, const Input& x, std::span<const Product> beside) = 0;
  virtual void run_head_matmul(const HeadMatrices& w, const Heads& x, const Heads& y) = 0;
  virtual void run_head_matmul_transposed(const HeadMatrices& w, const Heads& x, const Heads& y) = 0;
  virtual void run_visit(std::span<const ExpertVisit> visits, const Input& x, Rows partials,
                         const OwnProduct* beside) = 0;
  virtual void run_visit_adding(std::span<const ExpertVisit> visits, const Input& x, Rows sums, Rows y) = 0;

  std::byte* measured_host(std::size_t size);

  Workspace workspace_;
  OpsCounters counters_;
  std::function<void()> after_product_;
  std::vector<AlignedBuffer> measured_host_;  // of take_host() while measuring, since callers write to it
};

}  // namespace moeflux
