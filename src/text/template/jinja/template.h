#pragma once
// A Template is a parsed Jinja template, rendered as Hugging Face renders chat templates: the sandbox of
// Jinja2 3.1 with trim_blocks, lstrip_blocks, loop controls, the tag `generation` and extra functions
// (docs/templates.md).
//
// Immutable, thread-safe.

#include <cstddef>
#include <ctime>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/json/json.h"
#include "base/result.h"
#include "text/template/jinja/limits.h"
#include "text/template/jinja/marked_text.h"

namespace moeflux::jinja {

struct Ast;

// The variables of a template. A later one hides an earlier one of the same name.
struct Variables {
  struct Variable {
    std::string name;
    const Json* value;  // not null; outlives the rendering
    bool is_data;       // its text is from outside and is marked in the output
    // Receives the size of the output at the variable's first use, if it is used. The output up to there does
    // not depend on its value. A test for being defined is no use. At most one variable has it.
    std::size_t* first_use = nullptr;
  };
  std::vector<Variable> list;
  std::optional<std::tm> now;  // the local time, for strftime_now()
};

class Template {
 public:
  // Fails as jinja::parse() does (syntax/parser.h).
  static Result<Template> parse(std::string_view source, std::string_view name, const Limits& limits = {});

  // Error messages begin with the template's name and line. `invalid_argument`: the template raised an
  // exception, whose message follows "the template says: ", or a variable is not JSON. `corrupt_data`: the
  // template does not fit the variables (a TypeError or an undefined value in Jinja). `unsupported`: a limit,
  // or an unsupported feature.
  Result<MarkedText> render(const Variables& variables, const Limits& limits = {}) const;

 private:
  explicit Template(std::shared_ptr<const Ast> ast) : ast_(std::move(ast)) {}

  std::shared_ptr<const Ast> ast_;
};

}  // namespace moeflux::jinja
