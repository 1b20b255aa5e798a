#include "text/tokenizer/bpe.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <limits>

#include "base/check.h"
#include "text/tokenizer/byte_alphabet.h"

namespace moeflux {
namespace {

constexpr std::uint32_t kNone = std::numeric_limits<std::uint32_t>::max();
constexpr std::uint64_t kNoPair = std::numeric_limits<std::uint64_t>::max();
constexpr std::size_t kScanUpTo = 48;  // tokens of a piece; a heap is faster for more

std::uint64_t pair_of(std::uint32_t left, std::uint32_t right) { return std::uint64_t{left} << 32 | right; }

}  // namespace

Bpe::Scratch::Scratch() : slots_(kSlots) { static_assert(sizeof(Slot) == 64); }

Bpe::Bpe(const std::array<std::optional<TokenId>, 256>& byte_tokens, std::span<const Merge> merges,
         std::optional<WholePieces> whole_pieces, std::uint64_t seed)
    : multiplier_((seed ^ 0x9E3779B97F4A7C15u) | 1), whole_pieces_(whole_pieces) {
  for (std::size_t byte = 0; byte < 256; ++byte)
    byte_tokens_[byte] = byte_tokens[byte] ? byte_tokens[byte]->index() : kNone;
  const std::size_t capacity = std::bit_ceil(std::max<std::size_t>(16, merges.size() * 2));
  shift_ = 64 - static_cast<std::uint64_t>(std::countr_zero(capacity));
  entries_.assign(capacity, {kNoPair, {kNone, 0}});
  std::uint32_t rank = 0;
  for (const Merge& merge : merges) {
    const std::uint64_t pair = pair_of(merge.left.index(), merge.right.index());
    std::size_t slot = slot_of(pair);
    while (entries_[slot].pair != kNoPair && entries_[slot].pair != pair) slot = (slot + 1) & (capacity - 1);
    // The last merge of a duplicate pair counts, as in the reference.
    entries_[slot] = {pair, {rank++, merge.merged.index()}};
  }
}

// Multiply and shift: the high bits of the product depend on the whole pair.
std::size_t Bpe::slot_of(std::uint64_t pair) const {
  pair ^= pair >> 29;
  return static_cast<std::size_t>(pair * multiplier_ >> shift_);
}

Bpe::Merged Bpe::find(std::uint32_t left, std::uint32_t right) const {
  const std::uint64_t pair = pair_of(left, right);
  std::size_t slot = slot_of(pair);
  while (entries_[slot].pair != pair) {
    if (entries_[slot].pair == kNoPair) return {kNone, 0};
    slot = (slot + 1) & (entries_.size() - 1);
  }
  return entries_[slot].merged;
}

void Bpe::encode(std::string_view piece, Scratch& scratch, std::vector<TokenId>& out) const {
  const auto append = [&](std::span<const std::uint32_t> tokens) {
    for (const std::uint32_t token : tokens) out.push_back(TokenId{token});
  };
  if (piece.empty()) return;
  const bool fits = piece.size() <= Scratch::kLongestKey;
  const std::uint64_t hash = fits ? fast_hash(piece) : 0;
  Scratch::Slot& slot = scratch.slots_[hash % Scratch::kSlots];
  if (fits && slot.hash == hash && slot.bytes == piece.size() &&
      std::memcmp(slot.key, piece.data(), piece.size()) == 0)
    return append({slot.token, slot.tokens});
  compute(piece, scratch);
  const std::vector<std::uint32_t>& tokens = scratch.tokens_;
  append(tokens);
  if (!fits || tokens.size() > Scratch::kMostTokens) return;
  slot.hash = hash;
  slot.bytes = static_cast<std::uint8_t>(piece.size());
  slot.tokens = static_cast<std::uint8_t>(tokens.size());
  std::memcpy(slot.key, piece.data(), piece.size());
  std::copy(tokens.begin(), tokens.end(), slot.token);
}

void Bpe::compute(std::string_view piece, Scratch& scratch) const {
  MF_REQUIRE(piece.size() < kNone, "a piece is shorter than 4 GiB");
  std::vector<std::uint32_t>& tokens = scratch.tokens_;
  tokens.clear();
  if (whole_pieces_) {
    scratch.spelled_.clear();
    append_spelled(scratch.spelled_, piece);
    if (const auto number = whole_pieces_->spelled->find(scratch.spelled_)) {
      tokens.push_back(whole_pieces_->tokens[*number].index());
      return;
    }
  }
  for (const char byte : piece)
    if (const std::uint32_t token = byte_tokens_[static_cast<unsigned char>(byte)]; token != kNone)
      tokens.push_back(token);
  if (tokens.size() <= kScanUpTo) {
    merge_by_scan(scratch);
  } else {
    merge_by_heap(scratch);
  }
}

// ranks[i] is the rank of (tokens[i], tokens[i + 1]).
void Bpe::merge_by_scan(Scratch& scratch) const {
  std::vector<std::uint32_t>& tokens = scratch.tokens_;
  std::vector<std::uint32_t>& ranks = scratch.ranks_;
  if (tokens.size() < 2) return;
  ranks.clear();
  for (std::size_t i = 0; i + 1 < tokens.size(); ++i) ranks.push_back(find(tokens[i], tokens[i + 1]).rank);
  while (!ranks.empty()) {
    const auto lowest = std::min_element(ranks.begin(), ranks.end());  // the first of equals
    if (*lowest == kNone) return;
    const auto i = static_cast<std::size_t>(lowest - ranks.begin());
    tokens[i] = find(tokens[i], tokens[i + 1]).token;
    tokens.erase(tokens.begin() + static_cast<std::ptrdiff_t>(i) + 1);
    ranks.erase(lowest);
    if (i > 0) ranks[i - 1] = find(tokens[i - 1], tokens[i]).rank;
    if (i < ranks.size()) ranks[i] = find(tokens[i], tokens[i + 1]).rank;
  }
}

void Bpe::merge_by_heap(Scratch& scratch) const {
  using Candidate = Scratch::Candidate;
  std::vector<Scratch::Symbol>& symbols = scratch.symbols_;
  std::vector<Candidate>& heap = scratch.heap_;
  const auto later = [](const Candidate& a, const Candidate& b) {
    return a.rank != b.rank ? a.rank > b.rank : a.position > b.position;
  };
  const auto add = [&](std::uint32_t left, std::uint32_t right) {
    const Merged merged = find(symbols[left].token, symbols[right].token);
    if (merged.rank == kNone) return;
    heap.push_back({merged.rank, left, merged.token});
    std::push_heap(heap.begin(), heap.end(), later);
  };

  symbols.clear();
  heap.clear();
  const auto count = static_cast<std::uint32_t>(scratch.tokens_.size());
  for (std::uint32_t i = 0; i < count; ++i)
    symbols.push_back({scratch.tokens_[i], i == 0 ? kNone : i - 1, i + 1 == count ? kNone : i + 1});
  for (std::uint32_t i = 0; i + 1 < count; ++i) add(i, i + 1);

  while (!heap.empty()) {
    std::pop_heap(heap.begin(), heap.end(), later);
    const Candidate best = heap.back();
    heap.pop_back();
    // A candidate is stale if one of its symbols was merged in the meantime, which changed the rank.
    Scratch::Symbol& left = symbols[best.position];
    if (left.token == kNone || left.next == kNone) continue;
    Scratch::Symbol& right = symbols[left.next];
    if (find(left.token, right.token).rank != best.rank) continue;
    left.token = best.merged;
    right.token = kNone;
    left.next = right.next;
    if (left.next != kNone) {
      symbols[left.next].previous = best.position;
      add(best.position, left.next);
    }
    if (left.previous != kNone) add(left.previous, best.position);
  }
  scratch.tokens_.clear();
  for (const Scratch::Symbol& symbol : symbols)
    if (symbol.token != kNone) scratch.tokens_.push_back(symbol.token);
}

}  // namespace moeflux
