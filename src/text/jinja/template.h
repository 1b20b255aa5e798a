#pragma once
// A Jinja template, as Hugging Face renders chat templates: the sandbox of Jinja2 3.1 with trim_blocks and
// lstrip_blocks, loop controls, the tag `generation`, and functions of its own (docs/templates.md).
//
// Immutable after parsing; any thread may render, each for itself.

#include <ctime>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"
#include "base/result.h"
#include "text/jinja/limits.h"
#include "text/jinja/marked_text.h"

namespace moeflux::jinja {

struct Ast;

// What a template sees by name. Later ones hide earlier ones of the same name.
struct Variables {
  struct Variable {
    std::string name;
    const Json* value;  // not null, and outlives the rendering
    bool is_data;       // its text comes from outside, and is marked in what is rendered
  };
  std::vector<Variable> list;
  std::optional<std::tm> now;  // the local time, for strftime_now()
};

class Template {
 public:
  // Errors: see jinja/parser.h.
  static Result<Template> parse(std::string_view source, std::string_view name, const Limits& limits = {});

  // Errors begin with the template's name and line. `invalid_argument`: the template raised an exception on
  // purpose, with its message behind "the template says: ", or a variable is not JSON; `corrupt_data`: it
  // does not fit the variables (a TypeError or an undefined value in Jinja); `unsupported`: a limit, or a
  // feature that is not there.
  Result<MarkedText> render(const Variables& variables, const Limits& limits = {}) const;

 private:
  explicit Template(std::shared_ptr<const Ast> ast) : ast_(std::move(ast)) {}

  std::shared_ptr<const Ast> ast_;
};

}  // namespace moeflux::jinja
