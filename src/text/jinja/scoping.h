#pragma once
// Which names a block hides from the start: Jinja's rule for names that a template sets.
//
// Jinja decides at compile time what a name means. One that is set in a block before the block itself reads it
// is local to the block from its beginning, so blocks inside it that come earlier find it undefined, also when
// the caller gives a variable of that name. Pure function over a parsed template; one thread at a time.

#include "text/jinja/ast.h"

namespace moeflux::jinja {

// Fills in `hidden` of every block of the template. `unsupported` for a source that is made to take long here.
Status find_hidden_names(Ast& ast);

}  // namespace moeflux::jinja
