#pragma once
// A Regex is a compiled pattern of tokenizer.json, based on PCRE2.
//
// Regex is immutable and thread-safe; a search needs one RegexScratch per thread. Patterns run as machine
// code if the system allows it and in the interpreter otherwise, with the same matches. A search that exceeds
// the backtracking limit fails.

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

#include <cstddef>
#include <memory>
#include <optional>
#include <string_view>

#include "base/result.h"
#include "text/text_range.h"

namespace moeflux {

// The working memory of longer texts is freed after use, not kept for the next text.
inline constexpr std::size_t kLongTextBytes = std::size_t{64} << 10;

// Working memory of searches with any number of patterns. One thread at a time.
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
  // `pattern` has PCRE2's syntax (text/tokenizer/regex_rewrite.h). `what` names it in error messages.
  static Result<Regex> compile(std::string_view pattern, std::string_view what);

  // The first match in `text` (valid UTF-8) that begins at or after `from`. Assertions see the text before
  // `from`.
  Result<std::optional<TextRange>> find(std::string_view text, std::size_t from, RegexScratch& scratch) const;

 private:
  struct FreeCode {
    void operator()(pcre2_code* code) const { pcre2_code_free(code); }
  };
  std::unique_ptr<pcre2_code, FreeCode> code_;
  bool has_machine_code_ = false;
};

// Iterates over the matches in a text like Oniguruma's find_iter: an empty match at the end of the previous
// match is skipped.
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
