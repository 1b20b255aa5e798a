#pragma once
// Errors as values.
//
// An Error is a code for programs and a message for people. A Result is a value or an Error, and ignoring one
// does not compile. We use values, not exceptions, because errors cross threads (a read fails on an I/O
// thread and the error belongs to a session on another one), and because the C ABI and CUDA cannot carry
// exceptions. Only std::bad_alloc may be thrown.
//
//   Result<File> open(...);
//   MF_TRY(File file, open(path));          // value, or return the error
//   MF_TRY_STATUS(file.sync());             // the same for Status
//
// The members of Result are a subset of std::expected's, so that it can become an alias. Immutable values:
// any thread.

#include <string>
#include <string_view>
#include <tl/expected.hpp>
#include <type_traits>
#include <utility>

namespace moeflux {

enum class ErrorCode {
  not_found,         // a file, model or tensor is missing
  io_failed,         // the operating system could not read or write
  no_space,          // the disk is full
  corrupt_data,      // bytes that contradict each other or their format
  unsupported,       // recognized, but not implemented; the message names it
  invalid_argument,  // the caller passed an invalid value
  out_of_memory,     // an allocation failed, or the memory plan does not fit
  cancelled,
  token_out_of_range,  // a token id that is not in the vocabulary
  context_full,        // more positions than the session's capacity
  position_mismatch,   // the session is not at the position that the caller expects

  // Going back to an earlier position.
  no_checkpoint,              // there is none at that position
  cannot_truncate_recurrent,  // a recurrent state cannot be truncated
  tokens_unknown,             // an imported state cannot be replayed, because its tokens are not known

  // Snapshot files: docs/formats/snapshot.md.
  buffer_too_small,
  bad_magic,
  bad_version,
  shape_mismatch,
  negative_length,
  length_overflow,
  unequal_lengths,
  truncated,
  trailing_bytes,
  wrong_model,
  wrong_numerics,
  bad_checksum,
};

// The name of the code in JSON: "corrupt_data".
std::string_view name_of(ErrorCode code);

class [[nodiscard]] Error {
 public:
  // `message`: lower case, no full stop; what, where, expected, found, and what to do.
  Error(ErrorCode code, std::string message) : code_(code), message_(std::move(message)) {}

  ErrorCode code() const { return code_; }
  const std::string& message() const { return message_; }

  // Adds the activity that failed to the front of the message: "opening 'a': reading the header: ...".
  Error during(std::string_view activity) && {
    message_.insert(0, ": ");
    message_.insert(0, activity);
    return std::move(*this);
  }

 private:
  ErrorCode code_;
  std::string message_;
};

template <class T>
class [[nodiscard]] Result {
 public:
  using value_type = T;

  Result(T value) : state_(std::move(value)) {}
  Result(Error error) : state_(tl::unexpect, std::move(error)) {}

  bool has_value() const { return state_.has_value(); }
  explicit operator bool() const { return has_value(); }

  T& operator*() & { return *state_; }
  const T& operator*() const& { return *state_; }
  T&& operator*() && { return *std::move(state_); }
  T* operator->() { return &*state_; }
  const T* operator->() const { return &*state_; }

  const Error& error() const& { return state_.error(); }
  Error&& error() && { return std::move(state_).error(); }

 private:
  tl::expected<T, Error> state_;
};

template <>
class [[nodiscard]] Result<void> {
 public:
  using value_type = void;

  Result() = default;
  Result(Error error) : state_(tl::unexpect, std::move(error)) {}

  bool has_value() const { return state_.has_value(); }
  explicit operator bool() const { return has_value(); }

  const Error& error() const& { return state_.error(); }
  Error&& error() && { return std::move(state_).error(); }

 private:
  tl::expected<void, Error> state_;
};

using Status = Result<void>;

}  // namespace moeflux

#define MF_CONCAT_INNER(a, b) a##b
#define MF_CONCAT(a, b) MF_CONCAT_INNER(a, b)

// MF_TRY(auto x, f()): x is the value of f(), or the enclosing function returns the error of f().
#define MF_TRY_INNER(declaration, expression, result) \
  auto result = (expression);                         \
  if (!result) return std::move(result).error();      \
  declaration = *std::move(result)
#define MF_TRY(declaration, expression) \
  MF_TRY_INNER(declaration, expression, MF_CONCAT(mf_result_, __COUNTER__))

// The same for a Status, which has no value.
#define MF_TRY_STATUS_INNER(expression, status)    \
  do {                                             \
    auto status = (expression);                    \
    if (!status) return std::move(status).error(); \
  } while (false)
#define MF_TRY_STATUS(expression) MF_TRY_STATUS_INNER(expression, MF_CONCAT(mf_status_, __COUNTER__))
