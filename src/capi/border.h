#pragma once
// The border between C and the library: what comes in is checked, and nothing is thrown out.
//
// Every function of moeflux.h that can fail runs inside at_the_border(): a Status becomes an mf_status and a
// message, and so does an exception. Pure functions; any thread.

#include <moeflux.h>

#include <cstddef>
#include <cstring>
#include <exception>
#include <new>
#include <string_view>

#include "base/result.h"

namespace moeflux {

mf_status status_of(ErrorCode code);

// Fills `why`, if there is one; what does not fit is cut at the end of a character. Gives `status` back.
mf_status fail(mf_message* why, mf_status status, std::string_view message) noexcept;

// Runs `call`, a function that returns a Status.
template <class Call>
mf_status at_the_border(mf_message* why, Call call) noexcept {
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

// A struct of options as this library knows it; `given` may be null. What an older caller does not have is 0
// here; what a newer one has beyond it must be 0 there. `first_size` is the size that the struct had in its
// first version.
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
