#pragma once
// Parses the source of a template. Pure function, thread-safe.

#include <string_view>

#include "base/result.h"
#include "text/template/jinja/limits.h"
#include "text/template/jinja/syntax/ast.h"

namespace moeflux::jinja {

// `name` begins error messages: "chat_template.jinja:12: unexpected '}'". Fails with `corrupt_data` for a
// syntax error, and with `unsupported` for unsupported features of Jinja (include, extends, import, block)
// and for a source beyond a limit.
Result<Ast> parse(std::string_view source, std::string_view name, const Limits& limits);

}  // namespace moeflux::jinja
