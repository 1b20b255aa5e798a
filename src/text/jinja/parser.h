#pragma once
// The source of a template, parsed. Pure function: any thread.

#include <string_view>

#include "base/result.h"
#include "text/jinja/ast.h"
#include "text/jinja/limits.h"

namespace moeflux::jinja {

// `name` begins messages: "chat_template.jinja:12: unexpected '}'". What is wrong is `corrupt_data`; what
// Jinja has and this does not (include, extends, import, block), and what is beyond a limit, is
// `unsupported`.
Result<Ast> parse(std::string_view source, std::string_view name, const Limits& limits);

}  // namespace moeflux::jinja
