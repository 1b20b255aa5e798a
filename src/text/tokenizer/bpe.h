#pragma once
// Byte-pair encoding of a piece of bytes.
//
// A piece begins as the tokens of its single bytes; bytes without a token are left out, as in the reference.
// Then the adjacent pair of lowest rank is merged, the leftmost of equals first, until no pair can be merged.
// Short pieces scan for the pair, long ones keep a heap: O(n log n). Immutable after construction;
// thread-safe with one scratch per thread.

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/ids.h"
#include "text/tokenizer/string_table.h"

namespace moeflux {

// (left, right) -> merged. Merges are in order of rank.
struct Merge {
  TokenId left, right, merged;
};

class Bpe {
 public:
  // Working memory and a cache of recent pieces, so that common words are encoded once: 1 MiB.
  class Scratch {
   public:
    Scratch();

   private:
    friend class Bpe;
    static constexpr std::size_t kSlots = 1 << 14;
    static constexpr std::size_t kLongestKey = 30, kMostTokens = 6;
    struct Slot {  // a cache line
      std::uint64_t hash;
      std::uint8_t bytes;  // 0: empty
      std::uint8_t tokens;
      char key[kLongestKey];
      std::uint32_t token[kMostTokens];
    };
    struct Symbol {
      std::uint32_t token;
      std::uint32_t previous, next;  // indices; kNone at the ends
    };
    struct Candidate {
      std::uint32_t rank, position, merged;
    };
    std::vector<Slot> slots_;
    std::vector<std::uint32_t> tokens_, ranks_;
    std::vector<Symbol> symbols_;
    std::vector<Candidate> heap_;
    std::string spelled_;
  };

  // byte_tokens[b] is the token of the single byte b. `whole_pieces`, if given, lists pieces, as spelled in
  // the file, that are tokens regardless of the merges ("ignore_merges"); it refers to memory that outlives
  // this. `seed` is for the hash table of merges: see text/tokenizer/string_table.h.
  struct WholePieces {
    const StringTable* spelled;
    std::span<const TokenId> tokens;
  };
  Bpe(const std::array<std::optional<TokenId>, 256>& byte_tokens, std::span<const Merge> merges,
      std::optional<WholePieces> whole_pieces, std::uint64_t seed);

  // Appends the tokens of `piece`. Requires: `piece` is shorter than 4 GiB.
  void encode(std::string_view piece, Scratch& scratch, std::vector<TokenId>& out) const;

 private:
  struct Merged {
    std::uint32_t rank, token;
  };
  struct Entry {
    std::uint64_t pair;
    Merged merged;
  };

  std::size_t slot_of(std::uint64_t pair) const;
  Merged find(std::uint32_t left, std::uint32_t right) const;
  void compute(std::string_view piece, Scratch& scratch) const;
  void merge_by_scan(Scratch& scratch) const;
  void merge_by_heap(Scratch& scratch) const;

  std::array<std::uint32_t, 256> byte_tokens_;
  std::vector<Entry> entries_;  // by hash; a power of two, at most half full
  std::uint64_t multiplier_, shift_;
  std::optional<WholePieces> whole_pieces_;
};

}  // namespace moeflux
