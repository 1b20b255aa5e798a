#pragma once
// The methods of strings, dicts and lists that templates may call. One thread at a time.
//
// Methods that change a list or a dict are recognized by name and refused, as in the sandbox that Hugging
// Face uses.

#include <string_view>

#include "text/template/jinja/builtins/callable.h"

namespace moeflux::jinja {

class Evaluation;

bool has_method(const Value& self, std::string_view name);
// Whether the method is one of those that are refused because they change their object.
bool changes_object(const Value& self, std::string_view name);
Result<Value> call_method(Evaluation& evaluation, const Value& self, std::string_view name,
                          const Arguments& arguments);

// String methods, also used by filters.
using StringMethod = Result<Value> (*)(Evaluation&, const Value&, const Arguments&);
StringMethod find_string_method(std::string_view name);
StringMethod find_case_method(std::string_view name);

enum class StripSide { both, left, right };
// `self` without the characters of `characters` at its ends, or without whitespace if `characters` is None.
Result<Value> strip(Evaluation& evaluation, const Value& self, const Value& characters, StripSide side);
Result<Value> replace(Evaluation& evaluation, const Value& self, const Value& from, const Value& to,
                      std::int64_t count);
// The lines of a text as byte ranges, with or without their line ends.
std::vector<TextRange> lines_of(std::string_view text, bool keep_ends);

}  // namespace moeflux::jinja
