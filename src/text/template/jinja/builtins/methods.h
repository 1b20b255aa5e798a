#pragma once
// The methods of strings and dicts and lists that templates may call. One thread at a time.
//
// What would change a list or a dict is there by name and refused, as by the sandbox that Hugging Face
// renders in.

#include <string_view>

#include "text/jinja/callable.h"

namespace moeflux::jinja {

class Evaluation;

bool has_method(const Value& self, std::string_view name);
// A method that changes its object: known and forbidden.
bool changes_object(const Value& self, std::string_view name);
Result<Value> call_method(Evaluation& evaluation, const Value& self, std::string_view name,
                          const Arguments& arguments);

// The methods of strings, which filters use as well.
using StringMethod = Result<Value> (*)(Evaluation&, const Value&, const Arguments&);
StringMethod find_string_method(std::string_view name);
StringMethod find_case_method(std::string_view name);

enum class StripSide { both, left, right };
// `self` without the characters of `characters` at its ends; without whitespace when there are none given.
Result<Value> strip(Evaluation& evaluation, const Value& self, const Value& characters, StripSide side);
Result<Value> replace(Evaluation& evaluation, const Value& self, const Value& from, const Value& to,
                      std::int64_t count);
// The lines of a text as byte ranges, without or with their ends.
std::vector<TextRange> lines_of(std::string_view text, bool keep_ends);

}  // namespace moeflux::jinja
