#pragma once
// A Constraint restricts which tokens may come next: the interface between the sampler and grammars.
//
// It follows one generation token by token. The sampler queries it, and the generation loop reports each
// chosen token with accept(). End-of-text tokens are allowed exactly when can_end(). If every byte has a
// token, at least one token is allowed until an end token is accepted.
//
// No allocation after construction. One thread at a time.

#include <cstdint>
#include <span>

#include "base/ids.h"

namespace moeflux {

class Constraint {
 public:
  virtual ~Constraint() = default;
  Constraint(const Constraint&) = delete;
  Constraint& operator=(const Constraint&) = delete;

  // Whether `token` may come next. False for ids outside the constraint's vocabulary.
  virtual bool allows(TokenId token) const = 0;

  // Writes all of `mask`: bit t % 64 of word t / 64 is allows(TokenId{t}), and 0 beyond the vocabulary.
  // Requires: `mask` has a bit per token of the vocabulary.
  virtual void write_mask(std::span<std::uint64_t> mask) = 0;

  // Appends `token` to the text. Requires: allows(token).
  virtual void accept(TokenId token) = 0;

  // Whether the text may end here.
  virtual bool can_end() const = 0;

 protected:
  Constraint() = default;
};

}  // namespace moeflux
