#pragma once
// The boundary between C and the library: arguments are checked, and no exception leaves.
//
// Every function of moeflux.h that can fail runs inside at_boundary(), which turns a Status or an exception
// into an mf_status and a message. Pure functions; any thread.

#include <moeflux.h>

#include <cstddef>
#include <cstring>
#include <exception>
#include <new>
#include <string_view>

#include "base/result.h"

namespace moeflux {

mf_status status_of(ErrorCode code);

// Copies `message` to `why` if it is not null, cut between characters if it is too long. Returns `status`.
mf_status fail(mf_message* why, mf_status status, std::string_view message) noexcept;

// Runs `call`, a function that returns a Status.
template <class Call>
mf_status at_boundary(mf_message* why, Call call) noexcept {
  try {
    const Status status = call();
    if (status) return MF_OK;
    return fail(why, status_of(status.error().code()), status.error().message());
  } catch (const std::bad_alloc&) {
    return fail(why, MF_OUT_OF_MEMORY, "an allocation failed");
  } catch (const std::exception& unforeseen) {
    return fail(why, MF_INTERNAL, unforeseen.what());
  } catch (...) {
    return fail(why, MF_INTERNAL, "something was thrown that is no exception");
  }
}

Error null_argument(std::string_view name);
Error wrong_struct_size(std::string_view name, std::size_t expected, std::size_t found);
Error unknown_option(std::string_view name);

// Reads an options struct of any version; `given` may be null. Fields that an older caller does not have are
// 0. Fields of a newer caller beyond this version must be 0. `first_size` is the size of the struct's first
// version.
template <class Options>
Result<Options> read_options(const Options* given, std::string_view name, std::size_t first_size) {
  Options options{};
  if (given == nullptr) return options;
  const std::size_t size = given->struct_size;
  if (size < first_size) return wrong_struct_size(name, sizeof(Options), size);
  const auto* bytes = reinterpret_cast<const char*>(given);
  for (std::size_t i = sizeof(Options); i < size; ++i)
    if (bytes[i] != 0) return unknown_option(name);
  std::memcpy(&options, given, size < sizeof(Options) ? size : sizeof(Options));
  return options;
}

}  // namespace moeflux
