#pragma once
// Finds the names that each block hides from its beginning: Jinja's scoping rule for names that a template
// sets.
//
// Jinja resolves names at compile time. A name that a block sets before the block itself reads it is local to
// the whole block. Blocks inside it that come earlier see the name as undefined, even if the caller passes a
// variable of that name. Pure function over a parsed template; one thread at a time.

#include "text/template/jinja/syntax/ast.h"

namespace moeflux::jinja {

// Fills in `hidden` of every block. Fails with `unsupported` if the source has too many conditions over too
// many names.
Status find_hidden_names(Ast& ast);

}  // namespace moeflux::jinja
