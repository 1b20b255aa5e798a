#pragma once
// What a generation may say: the seam between the sampler and grammars.
//
// A constraint follows one generation, token by token, and says which tokens may come next. The sampler asks;
// the generation loop tells it, by accept(), what was chosen. End-of-text tokens are allowed exactly when
// can_end(). A constraint never leaves the decision empty by itself: as long as every byte has a token, some
// token is allowed until the end token was accepted.
//
// One thread at a time. Nothing allocates after construction.

#include <cstdint>
#include <span>

#include "base/ids.h"

namespace moeflux {

class Constraint {
 public:
  virtual ~Constraint() = default;
  Constraint(const Constraint&) = delete;
  Constraint& operator=(const Constraint&) = delete;

  // Whether `token` may come next. False for ids that the constraint's vocabulary does not have.
  virtual bool allows(TokenId token) const = 0;

  // Writes all of `mask`: bit (t mod 64) of word t / 64 is allows(TokenId{t}). Requires room for the
  // vocabulary; what is beyond it becomes 0.
  virtual void write_mask(std::span<std::uint64_t> mask) = 0;

  // The text goes on with `token`. Requires allows(token).
  virtual void accept(TokenId token) = 0;

  // Whether the text may end here.
  virtual bool can_end() const = 0;

 protected:
  Constraint() = default;
};

}  // namespace moeflux
