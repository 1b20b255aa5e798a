#pragma once
// A compiled pattern of tokenizer.json, over PCRE2.
//
// Regex is immutable: any thread. What a search writes to is a RegexScratch, one for each thread. Machine code
// is used where the system allows it, otherwise the interpreter; both give the same matches. A search that
// backtracks more than the limits allow is an error, never a hang.

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

#include <cstddef>
#include <memory>
#include <optional>
#include <string_view>

#include "base/result.h"
#include "text/text_range.h"

namespace moeflux {

// Memory of searches, for any number of patterns. One thread at a time.
class RegexScratch {
 public:
  RegexScratch();

 private:
  friend class Regex;
  template <auto free>
  struct Free {
    template <class T>
    void operator()(T* object) const {
      free(object);
    }
  };
  std::unique_ptr<pcre2_match_data, Free<pcre2_match_data_free>> match_;
  std::unique_ptr<pcre2_match_context, Free<pcre2_match_context_free>> context_;
  std::unique_ptr<pcre2_jit_stack, Free<pcre2_jit_stack_free>> stack_;
};

class Regex {
 public:
  // `pattern` is in PCRE2's syntax (text/regex_rewrite.h); `what` names it in messages.
  static Result<Regex> compile(std::string_view pattern, std::string_view what);

  // The first match in `text`, valid UTF-8, that begins at or after `from`. What is before `from` is seen by
  // assertions.
  Result<std::optional<TextRange>> find(std::string_view text, std::size_t from, RegexScratch& scratch) const;

 private:
  struct FreeCode {
    void operator()(pcre2_code* code) const { pcre2_code_free(code); }
  };
  std::unique_ptr<pcre2_code, FreeCode> code_;
  bool has_machine_code_ = false;
};

// The matches of a text one after the other, as Oniguruma's find_iter gives them: an empty match that touches
// the end of the match before it does not count.
class Matches {
 public:
  Matches(const Regex& regex, std::string_view text, RegexScratch& scratch)
      : regex_(&regex), text_(text), scratch_(&scratch) {}

  Result<std::optional<TextRange>> next();

 private:
  const Regex* regex_;
  std::string_view text_;
  RegexScratch* scratch_;
  std::size_t from_ = 0;
  std::optional<std::size_t> last_end_;
};

}  // namespace moeflux
