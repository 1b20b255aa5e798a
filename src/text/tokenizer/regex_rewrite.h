#pragma once
// Rewrites a regular expression of tokenizer.json for PCRE2.
//
// The files are written for Oniguruma with Ruby syntax, in which some constructs have another meaning: \s is
// White_Space (PCRE2 adds U+180E), \w is Alphabetic, marks, decimal digits and connectors (PCRE2 omits
// marks), \h is a hexadecimal digit, (?m) is PCRE2's (?s), \p{Han} is the script alone (PCRE2 includes script
// extensions), and [a[bc]] and [a&&b] are sets, which PCRE2 lacks (they become groups of lookaheads that
// match one character). Constructs with the same meaning pass through. A construct that PCRE2 cannot express
// is refused by name, so no pattern is misread. Pure function, thread-safe.

#include <string>
#include <string_view>

#include "base/result.h"

namespace moeflux {

// The result is for a compilation with PCRE2_UTF, UCP and MULTILINE and with LF as the newline. Requires:
// `pattern` is valid UTF-8. `what` names it in error messages. Fails with `unsupported`, or with
// `corrupt_data` for an invalid pattern.
Result<std::string> rewrite_regex(std::string_view pattern, std::string_view what);

// A pattern that matches exactly `text`, in the same syntax.
std::string regex_of_literal(std::string_view text);

}  // namespace moeflux
