#pragma once
// Callable objects and call arguments, loops, and the scopes that macros capture.
//
// A Scope is one level of names: of the template, of a loop iteration or of a macro. Its parent is the scope
// around it in the source. One thread at a time.

#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "text/template/jinja/syntax/ast.h"
#include "text/template/jinja/value.h"

namespace moeflux::jinja {

struct Arguments {
  std::vector<Value> positional;
  std::vector<std::pair<std::string, Value>> named;
};

struct Scope {
  std::shared_ptr<Scope> parent;
  std::map<std::string_view, Value> names;  // owned by the template and its data

  const Value* find(std::string_view name) const {
    for (const Scope* scope = this; scope != nullptr; scope = scope->parent.get()) {
      const auto found = scope->names.find(name);
      if (found != scope->names.end()) return &found->second;
    }
    return nullptr;
  }
};

struct CallableObject : Object {
  enum class Type : std::uint8_t { function, method, macro };
  Type type = Type::function;
  std::string name;              // of a function or a method
  Value self;                    // the object of a method
  const Macro* macro = nullptr;  // of the template
  std::shared_ptr<Scope> scope;  // where the macro was defined
};

struct LoopObject : Object {
  std::vector<Value> items;
  std::size_t at = 0;
  std::uint32_t level = 0;  // of a recursive loop, from 0
  std::vector<Value> last_changed;
  bool changed_before = false;
  const For* statement = nullptr;
  std::shared_ptr<Scope> scope;  // around the loop
};

}  // namespace moeflux::jinja
