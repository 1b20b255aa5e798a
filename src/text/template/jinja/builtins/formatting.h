#pragma once
// Values as text: str(), repr(), json.dumps(), the operator % and str.format(). One thread at a time.

#include <string>

#include "text/jinja/callable.h"

namespace moeflux::jinja {

class Evaluation;

// Shortest digits that give the same number back: 1.0, 1e-05, inf.
std::string python_float(double value);

// Appends str(value), or repr(value): strings as they are, or in quotes with escapes.
Status add_str(TextBuilder& out, const Value& value, Budget& budget);
Status add_repr(TextBuilder& out, const Value& value, Budget& budget);
// str(value) as a value: a string is itself.
Result<Value> str(const Value& value, const Heap& heap);

struct JsonStyle {
  bool ensure_ascii = false;
  std::optional<std::string> indent;  // of one level; absent: all on one line
  std::string item_separator = ", ";
  std::string key_separator = ": ";
  bool sort_keys = false;
};
Result<Value> json_dump(const Value& value, const JsonStyle& style, const Heap& heap);

// `format % values`; a tuple or a dict gives several.
Result<Value> percent_format(const Value& format, const Value& values, const Heap& heap);
// format.format(arguments).
Result<Value> brace_format(Evaluation& evaluation, const Value& format, const Arguments& arguments);

// One value by a format specification such as ">10" or ".2f".
Status add_formatted(TextBuilder& out, const Value& value, std::string_view specification, Budget& budget);

}  // namespace moeflux::jinja
