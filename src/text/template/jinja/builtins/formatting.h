#pragma once
// Conversions of values to text: str(), repr(), json.dumps(), the operator % and str.format(). One thread at
// a time.

#include <string>

#include "text/template/jinja/builtins/callable.h"

namespace moeflux::jinja {

class Evaluation;

// The shortest digits that round-trip, as in Python: 1.0, 1e-05, inf.
std::string python_float(double value);

// Appends str(value), which leaves a string unchanged, or repr(value), which quotes and escapes strings.
Status add_str(TextBuilder& out, const Value& value, Budget& budget);
Status add_repr(TextBuilder& out, const Value& value, Budget& budget);
// Returns str(value) as a value; a string is returned unchanged.
Result<Value> str(const Value& value, const Heap& heap);

struct JsonStyle {
  bool ensure_ascii = false;
  std::optional<std::string> indent;  // of one level; absent: everything on one line
  std::string item_separator = ", ";
  std::string key_separator = ": ";
  bool sort_keys = false;
};
Result<Value> json_dump(const Value& value, const JsonStyle& style, const Heap& heap);

// `format % values`. A tuple or a dict holds several values.
Result<Value> percent_format(const Value& format, const Value& values, const Heap& heap);
// format.format(arguments).
Result<Value> brace_format(Evaluation& evaluation, const Value& format, const Arguments& arguments);

// Appends one value, formatted by a specification such as ">10" or ".2f".
Status add_formatted(TextBuilder& out, const Value& value, std::string_view specification, Budget& budget);

}  // namespace moeflux::jinja
