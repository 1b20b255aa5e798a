#pragma once
// A callable, borrowed for the length of a call.
//
// Two pointers, no allocation, no ownership: a parameter type for functions that call back before they
// return. A FunctionRef does not extend the life of what it refers to, so it is passed, not stored. It
// always refers to something.

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
  // A pointer to a function may not pass through void*.
  union Target {
    void* object;
    void (*function)();
  };

  Target target_;
  R (*call_)(Target, Args...);
};

}  // namespace moeflux
