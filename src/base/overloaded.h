#pragma once
// std::visit with one lambda per alternative: visit(overloaded{[](A) {...}, [](B) {...}}, variant).
// A new alternative of the variant breaks the build at every visit that does not handle it.

namespace moeflux {

template <class... F>
struct overloaded : F... {
  using F::operator()...;
};
template <class... F>
overloaded(F...) -> overloaded<F...>;  // clang 14 does not deduce this for aggregates

}  // namespace moeflux
