#pragma once
// std::visit with one lambda a case: visit(overloaded{[](A) {...}, [](B) {...}}, variant).
// A variant that gains a case breaks every visit that has not thought about it.

namespace moeflux {

template <class... F>
struct overloaded : F... {
  using F::operator()...;
};
template <class... F>
overloaded(F...) -> overloaded<F...>;  // clang 14 does not deduce this for aggregates

}  // namespace moeflux
