#pragma once
// A regular expression of tokenizer.json, rewritten for PCRE2.
//
// The files are written for Oniguruma with its Ruby syntax, which reads some of the same letters differently:
// \s is White_Space (PCRE2 adds U+180E), \w is Alphabetic, marks, decimal digits and connectors (PCRE2 leaves
// marks out), \h is a hexadecimal digit, (?m) is PCRE2's (?s), \p{Han} is the script alone (PCRE2 means its
// extensions too), [a[bc]] and [a&&b] are sets (PCRE2 has neither: they become groups of lookaheads that
// match one character). What means the same passes; what neither means the same nor can be said in PCRE2 is
// refused by name, so that no pattern is ever read wrongly. Pure function: any thread.

#include <string>
#include <string_view>

#include "base/result.h"

namespace moeflux {

// For a compilation with PCRE2_UTF, UCP and MULTILINE and with LF as the newline. `what` names the pattern in
// messages. `pattern` is valid UTF-8. Fails with `unsupported`, or `corrupt_data` where it is no pattern at all.
Result<std::string> rewrite_regex(std::string_view pattern, std::string_view what);

// A pattern for exactly `text`, in the syntax of the result above.
std::string regex_of_literal(std::string_view text);

}  // namespace moeflux
