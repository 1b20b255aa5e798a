#pragma once
// Cuts a text into pieces that no token crosses: tokenizer.json's "pre_tokenizer".
//
// A sequence of steps. Each cuts every piece of the step before, and sees nothing beyond that piece. The last
// one is always ByteLevel: pieces leave as the bytes that they are, to be looked up as such. Immutable: any
// thread; the scratch is for one thread at a time.

#include <string>
#include <string_view>
#include <vector>

#include "base/function_ref.h"
#include "base/json.h"
#include "base/result.h"
#include "text/regex.h"

namespace moeflux {

// What becomes of a match: a piece of its own, nothing, a part of the piece before or after it, or one piece
// with its neighbours of the same kind.
enum class SplitBehavior { isolated, removed, merged_with_previous, merged_with_next, contiguous };

class PreTokenizer {
 public:
  class Scratch {
   private:
    friend class PreTokenizer;
    struct Cut {
      TextRange range;
      bool matches;
    };
    RegexScratch regex_;
    std::vector<std::vector<Cut>> cuts_;  // one list a step
    std::string prefixed_;
  };

  // The "pre_tokenizer" of a tokenizer.json; `where` names it in messages: "tokenizer.json: pre_tokenizer".
  static Result<PreTokenizer> parse(const Json& section, std::string_view where);

  // Calls `piece` for each piece of `text` (valid UTF-8) in order; none is empty.
  Status split(std::string_view text, Scratch& scratch,
               FunctionRef<void(std::string_view piece)> piece) const;

 private:
  struct Step {
    Regex regex;
    SplitBehavior behavior;
    bool invert;
  };
  using Cuts = std::vector<Scratch::Cut>;

  static Status read(const Json& section, std::string_view where, int depth, PreTokenizer& into);
  Status add_step(std::string_view pattern, SplitBehavior behavior, bool invert, std::string_view where);
  Status read_split(const Json& section, std::string_view where);
  Status read_byte_level(const Json& section, std::string_view where);

  Status run(std::size_t step, std::string_view text, Scratch& scratch,
             FunctionRef<void(std::string_view)> piece) const;
  Status isolate(std::size_t step, std::string_view text, Scratch& scratch,
                 FunctionRef<void(std::string_view)> piece) const;
  static Status find_cuts(const Step& step, std::string_view text, RegexScratch& scratch, Cuts& cuts);

  std::vector<Step> steps_;
  std::size_t steps_before_prefix_ = 0;  // steps that run before ByteLevel puts its space in front
  bool add_prefix_space_ = false;
  bool ends_with_byte_level_ = false;
};

}  // namespace moeflux
