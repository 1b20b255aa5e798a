#pragma once
// A non-owning reference to a callable.
//
// Two pointers and no allocation: a parameter type for functions that call back before they return. It does
// not extend the lifetime of the callable, so pass it and do not store it. It is never null.

#include <memory>
#include <type_traits>
#include <utility>

namespace moeflux {

template <class Signature>
class FunctionRef;

template <class R, class... Args>
class FunctionRef<R(Args...)> {
 public:
  template <class F>
  requires(!std::is_same_v<std::remove_cvref_t<F>, FunctionRef> && std::is_invocable_r_v<R, F&, Args...>)
      FunctionRef(F&& callable) {
    using Callable = std::remove_reference_t<F>;
    if constexpr (std::is_function_v<Callable>) {
      target_.function = reinterpret_cast<void (*)()>(&callable);
      call_ = [](Target target, Args... args) -> R {
        return reinterpret_cast<Callable*>(target.function)(std::forward<Args>(args)...);
      };
    } else {
      target_.object = const_cast<void*>(static_cast<const void*>(std::addressof(callable)));
      call_ = [](Target target, Args... args) -> R {
        return (*static_cast<Callable*>(target.object))(std::forward<Args>(args)...);
      };
    }
  }

  R operator()(Args... args) const { return call_(target_, std::forward<Args>(args)...); }

 private:
  // A union, because a function pointer may not be converted to void*.
  union Target {
    void* object;
    void (*function)();
  };

  Target target_;
  R (*call_)(Target, Args...);
};

}  // namespace moeflux
