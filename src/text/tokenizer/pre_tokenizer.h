#pragma once
// A PreTokenizer splits a text into pieces that no token crosses: the "pre_tokenizer" of tokenizer.json.
//
// It is a sequence of steps. Each step splits every piece of the step before and sees only that piece. The
// last step is always ByteLevel, so pieces are plain bytes. Immutable, thread-safe; a scratch is for one
// thread at a time.

#include <string>
#include <string_view>
#include <vector>

#include "base/function_ref.h"
#include "base/json/json.h"
#include "base/result.h"
#include "text/tokenizer/regex.h"

namespace moeflux {

// What a match becomes: its own piece, nothing, part of the piece before or after it, or one piece with
// adjacent matches.
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
    std::vector<std::vector<Cut>> cuts_;  // one list per step
    std::string prefixed_;
  };

  // Reads the "pre_tokenizer" section. `where` names it in error messages: "tokenizer.json: pre_tokenizer".
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
  std::size_t steps_before_prefix_ = 0;  // steps before ByteLevel adds its leading space
  bool add_prefix_space_ = false;
  bool ends_with_byte_level_ = false;
};

}  // namespace moeflux
