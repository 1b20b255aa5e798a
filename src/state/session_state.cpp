#include "state/session_state.h"

#include <algorithm>
#include <cstring>
#include <memory>
#include <utility>

#include "base/check.h"

namespace moeflux {
namespace {

// Reserved steps with one snapshot between them need at most this many blocks of recurrent states.
constexpr std::size_t kMostWritable = 3;

}  // namespace

Result<SessionState> SessionState::create(const ModelConfig& config, BlockPool& pool, std::uint32_t context,
                                          KvDtype dtype) {
  SessionState state(pool, state_shape_of(config, dtype));
  state.context_ = context;
  if (state.is_recurrent()) {
    MF_TRY(state.zeros_, pool.zeros(state.shape_.recurrent_bytes()));
    state.writable_.reserve(kMostWritable);
  }
  // Reserve everything that grows with the position, so that no step allocates.
  state.tokens_.reserve(context);
  state.blocks_.resize(state.shape_.kv.size());
  for (std::size_t i = 0; i < state.blocks_.size(); ++i)
    if (state.shape_.kv[i].heads != 0) state.blocks_[i].reserve(kv_blocks_for(context));
  return state;
}

Result<KvBlock> SessionState::new_block(const KvShape& shape) {
  MF_TRY(BlockRef memory, pool_->acquire(shape.block_bytes()));
  float* const keys = memory.data();
  float* const values = shape.value_dim == 0 ? nullptr : keys + shape.key_words();
  return KvBlock{std::move(memory), keys, values};
}

// Ensures that this session may write the rows of `block` from `rows_kept` on. If another owner has claimed
// any of those rows, copies the rows before them to a new block.
Status SessionState::own_block(const KvShape& shape, KvBlock& block, std::uint32_t rows_kept) {
  if (!block.memory.is_shared() || block.memory.filled() == rows_kept) return {};
  MF_TRY(KvBlock copy, new_block(shape));
  const auto copy_rows = [&](const float* from, float* to, std::size_t words) {
    for (std::size_t head = 0; head < shape.heads; ++head)
      std::memcpy(to + head * kKvBlockPositions * words, from + head * kKvBlockPositions * words,
                  rows_kept * words * sizeof(float));
  };
  copy_rows(block.keys, copy.keys, shape.key_row_words());
  if (block.values != nullptr) copy_rows(block.values, copy.values, shape.value_row_words());
  pool_->count_copied(std::uint64_t{rows_kept} * shape.heads *
                      (shape.key_row_words() + shape.value_row_words()) * sizeof(float));
  block = std::move(copy);
  return {};
}

Status SessionState::reserve(std::uint32_t rows, std::uint64_t steps, std::uint64_t snapshots) {
  MF_REQUIRE(rows <= context_ - position_, "the positions are in the context");
  if (rows == 0) return {};
  const std::uint64_t end = std::uint64_t{position_} + rows;
  Status acquired = acquire_recurrent(steps, snapshots);
  if (acquired && end > reserved_end_) acquired = acquire_blocks(kv_blocks_for(end));
  if (!acquired) {
    abandon();
    return acquired;
  }
  if (end <= reserved_end_) return {};
  claim_rows(end);
  reserved_end_ = end;
  return {};
}

// The block of this position can be written by the step after the next one, unless a snapshot shares it.
Status SessionState::acquire_recurrent(std::uint64_t steps, std::uint64_t snapshots) {
  if (!is_recurrent()) return {};
  const bool reuses_current = recurrent_ && !recurrent_.is_shared();
  const std::uint64_t wanted = std::min(steps, (reuses_current ? 1u : 2u) + snapshots);
  while (writable_.size() < wanted) {
    MF_TRY(BlockRef block, pool_->acquire(shape_.recurrent_bytes()));
    writable_.push_back(std::move(block));
  }
  return {};
}

// Acquires blocks for the first `count` blocks of every layer.
Status SessionState::acquire_blocks(std::size_t count) {
  const std::size_t last = position_ / kKvBlockPositions;  // the block of the next row
  for (std::size_t i = 0; i < blocks_.size(); ++i) {
    const KvShape& shape = shape_.kv[i];
    if (shape.heads == 0) continue;
    std::vector<KvBlock>& blocks = blocks_[i];
    if (last < blocks.size() && reserved_end_ == position_)  // otherwise this session owns it already
      MF_TRY_STATUS(own_block(shape, blocks[last], position_ % kKvBlockPositions));
    while (blocks.size() < count) {
      MF_TRY(KvBlock block, new_block(shape));
      blocks.push_back(std::move(block));
    }
  }
  return {};
}

// Sets the claimed rows of all blocks from the position on, up to `end`.
void SessionState::claim_rows(std::uint64_t end) {
  const std::size_t count = kv_blocks_for(end);
  for (std::vector<KvBlock>& blocks : blocks_)
    for (std::size_t b = position_ / kKvBlockPositions; b < blocks.size() && b < count; ++b) {
      const std::uint64_t first = b * std::uint64_t{kKvBlockPositions};
      blocks[b].memory.set_filled(
          static_cast<std::uint32_t>(std::min<std::uint64_t>(kKvBlockPositions, end - first)));
    }
}

Status SessionState::begin_step(std::span<const TokenId> tokens) {
  MF_REQUIRE(!tokens.empty(), "a step has at least one token");
  drop_step();
  MF_TRY_STATUS(reserve(static_cast<std::uint32_t>(tokens.size())));
  tokens_.insert(tokens_.end(), tokens.begin(), tokens.end());
  return {};
}

void SessionState::commit() {
  const std::size_t committed = tokens().size();
  MF_REQUIRE(tokens_.size() > committed, "a step was begun");
  position_ += static_cast<std::uint32_t>(tokens_.size() - committed);
  if (!is_recurrent()) return;
  BlockRef before = std::exchange(recurrent_, std::move(writable_.back()));
  writable_.pop_back();
  if (position_ == reserved_end_)
    writable_.clear();  // `before` too returns to the pool, unless a snapshot shares it
  else if (before && !before.is_shared())
    writable_.push_back(std::move(before));
}

void SessionState::drop_step() { tokens_.resize(tokens().size(), TokenId(0)); }

// Only this session sees rows that it has claimed and not committed, so it can return the claim. The next
// step then finds the block as this one did and copies nothing. Without a claim, `filled` may be another
// session's.
void SessionState::abandon() {
  drop_step();
  writable_.clear();
  if (reserved_end_ > position_) claim_rows(position_);
  reserved_end_ = position_;
  for (std::vector<KvBlock>& blocks : blocks_)
    if (blocks.size() > kv_blocks_for(position_)) blocks.resize(kv_blocks_for(position_));
}

void SessionState::clear() {
  for (std::vector<KvBlock>& blocks : blocks_) blocks.clear();
  tokens_.clear();
  tokens_begin_ = 0;
  position_ = 0;
  reserved_end_ = 0;
  recurrent_ = {};
  writable_.clear();
}

void SessionState::truncate(std::uint32_t position) {
  MF_REQUIRE(can_truncate(), "no layer has a recurrent state");
  MF_REQUIRE(position <= position_, "positions are dropped from the end");
  position_ = position;
  reserved_end_ = position;
  if (position <= tokens_begin_) tokens_begin_ = position;
  tokens_.resize(position - tokens_begin_, TokenId(0));
  abandon();
}

Snapshot SessionState::snapshot(std::shared_ptr<const void> owner) const {
  auto contents = std::make_shared<Snapshot::Contents>();
  contents->owner = std::move(owner);
  contents->position = position_;
  contents->tokens.assign(tokens().begin(), tokens().end());
  contents->tokens_begin = tokens_begin_;
  contents->recurrent = recurrent_;
  contents->blocks.resize(blocks_.size());
  for (std::size_t i = 0; i < blocks_.size(); ++i) {
    const std::size_t count = std::min(blocks_[i].size(), kv_blocks_for(position_));
    contents->blocks[i].assign(blocks_[i].begin(), blocks_[i].begin() + static_cast<std::ptrdiff_t>(count));
  }
  return Snapshot(std::move(contents));
}

void SessionState::restore(const Snapshot& snapshot) {
  const Snapshot::Contents& contents = snapshot.contents();
  MF_REQUIRE(contents.position <= context_ && contents.blocks.size() == blocks_.size() &&
                 (!contents.recurrent || contents.recurrent.bytes() == shape_.recurrent_block_bytes()),
             "a snapshot of this model that fits the context");
  position_ = contents.position;
  reserved_end_ = position_;
  tokens_.assign(contents.tokens.begin(), contents.tokens.end());
  tokens_begin_ = contents.tokens_begin;
  for (std::size_t i = 0; i < blocks_.size(); ++i)
    blocks_[i].assign(contents.blocks[i].begin(), contents.blocks[i].end());
  recurrent_ = contents.recurrent;
  writable_.clear();
}

RecurrentView SessionState::recurrent_at(std::uint64_t offset) const {
  return {(recurrent_ ? recurrent_.data() : zeros_) + offset,
          writable_.empty() ? nullptr : writable_.back().data() + offset};
}

RecurrentView SessionState::conv(LayerId layer) {
  return recurrent_at(shape_.recurrent[layer.index()].conv_offset);
}

RecurrentView SessionState::delta(LayerId layer) {
  return recurrent_at(shape_.recurrent[layer.index()].delta_offset);
}

}  // namespace moeflux
