// expect: (no type named 'type' in|no matching function)
// A variant has a case that this visit does not handle.
#include <variant>

#include "base/overloaded.h"

struct GatedDeltaNet {};
struct GatedAttention {};
struct LatentAttention {};
using Mixer = std::variant<GatedDeltaNet, GatedAttention, LatentAttention>;

bool is_recurrent(const Mixer& mixer) {
  return std::visit(moeflux::overloaded{
                        [](const GatedDeltaNet&) { return true; },
                        [](const GatedAttention&) { return false; },
#ifdef FIXED
                        [](const LatentAttention&) { return false; },
#endif
                    },
                    mixer);
}
