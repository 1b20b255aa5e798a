#include "text/tokenizer/regex.h"

#include <fmt/format.h>

#include <array>
#include <cstdint>
#include <new>

#include "base/printable.h"
#include "base/sizes.h"
#include "text/unicode/utf8.h"

namespace moeflux {
namespace {

constexpr std::uint32_t kMatchLimit = 10'000'000;  // backtracking steps per search; PCRE2's default
constexpr std::uint32_t kHeapLimitKib = 128 * 1024;
constexpr std::size_t kLongestPattern = 64 * kKiB;
constexpr std::uint32_t kMaxNesting = 100;  // nested parentheses, because the compiler recurses
constexpr std::size_t kJitStackStart = 32 * kKiB, kJitStackMost = 8 * kMiB;

std::string message_of(int code) {
  std::array<PCRE2_UCHAR, 256> text{};
  pcre2_get_error_message(code, text.data(), text.size());
  return reinterpret_cast<const char*>(text.data());
}

struct FreeCompileContext {
  void operator()(pcre2_compile_context* context) const { pcre2_compile_context_free(context); }
};

PCRE2_SPTR units(std::string_view text) { return reinterpret_cast<PCRE2_SPTR>(text.data()); }

}  // namespace

RegexScratch::RegexScratch()
    : match_(pcre2_match_data_create(1, nullptr)),
      context_(pcre2_match_context_create(nullptr)),
      stack_(pcre2_jit_stack_create(kJitStackStart, kJitStackMost, nullptr)) {
  if (!match_ || !context_) throw std::bad_alloc();
  pcre2_set_match_limit(context_.get(), kMatchLimit);
  pcre2_set_heap_limit(context_.get(), kHeapLimitKib);
  // Without its own stack, machine code uses 32 KiB of the thread's stack.
  if (stack_) pcre2_jit_stack_assign(context_.get(), nullptr, stack_.get());
}

Result<Regex> Regex::compile(std::string_view pattern, std::string_view what) {
  std::unique_ptr<pcre2_compile_context, FreeCompileContext> context(pcre2_compile_context_create(nullptr));
  if (!context) throw std::bad_alloc();
  pcre2_set_newline(context.get(), PCRE2_NEWLINE_LF);
  pcre2_set_max_pattern_length(context.get(), kLongestPattern);
  pcre2_set_parens_nest_limit(context.get(), kMaxNesting);
  int error = 0;
  PCRE2_SIZE offset = 0;
  Regex regex;
  regex.code_.reset(pcre2_compile(units(pattern), pattern.size(),
                                  PCRE2_UTF | PCRE2_UCP | PCRE2_MULTILINE | PCRE2_NEVER_BACKSLASH_C, &error,
                                  &offset, context.get()));
  if (!regex.code_)
    return Error{ErrorCode::unsupported, fmt::format("{}: the pattern '{}' does not compile: {} at byte {}",
                                                     what, printable(pattern), message_of(error), offset)};
  regex.has_machine_code_ = pcre2_jit_compile(regex.code_.get(), PCRE2_JIT_COMPLETE) == 0;
  return regex;
}

Result<std::optional<TextRange>> Regex::find(std::string_view text, std::size_t from,
                                             RegexScratch& scratch) const {
  const auto found = [](pcre2_match_data* match) -> std::optional<TextRange> {
    const PCRE2_SIZE* bounds = pcre2_get_ovector_pointer(match);
    return TextRange{bounds[0], bounds[1]};
  };
  int status = PCRE2_ERROR_JIT_STACKLIMIT;
  if (has_machine_code_) {
    status = pcre2_jit_match(code_.get(), units(text), text.size(), from, PCRE2_NO_UTF_CHECK,
                             scratch.match_.get(), scratch.context_.get());
    if (status >= 0) return found(scratch.match_.get());
  }
  if (status == PCRE2_ERROR_JIT_STACKLIMIT) {
    // The interpreter keeps as much memory as its longest search took, so a long text gets separate memory.
    std::optional<RegexScratch> own;
    if (text.size() > kLongTextBytes) own.emplace();
    RegexScratch& memory = own ? *own : scratch;
    status = pcre2_match(code_.get(), units(text), text.size(), from, PCRE2_NO_UTF_CHECK | PCRE2_NO_JIT,
                         memory.match_.get(), memory.context_.get());
    if (status >= 0) return found(memory.match_.get());
  }
  if (status == PCRE2_ERROR_NOMATCH) return std::optional<TextRange>{};
  return Error{ErrorCode::unsupported,
               fmt::format("splitting a text of {} bytes with the tokenizer's pattern failed: {}",
                           text.size(), message_of(status))};
}

Result<std::optional<TextRange>> Matches::next() {
  while (from_ <= text_.size()) {
    MF_TRY(const std::optional<TextRange> match, regex_->find(text_, from_, *scratch_));
    if (!match) break;
    if (match->begin == match->end && last_end_ == match->end) {
      from_ += from_ < text_.size() ? code_point_at(text_, from_).bytes : 1;
      continue;
    }
    from_ = match->end;
    last_end_ = match->end;
    return match;
  }
  from_ = text_.size() + 1;
  return std::optional<TextRange>{};
}

}  // namespace moeflux
