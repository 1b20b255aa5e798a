#include "capi/boundary.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/utf8.h"

// One line per code: its name in C and in the library.
#define MF_EACH_CODE(X)                                      \
  X(MF_NOT_FOUND, not_found)                                 \
  X(MF_IO_FAILED, io_failed)                                 \
  X(MF_NO_SPACE, no_space)                                   \
  X(MF_CORRUPT_DATA, corrupt_data)                           \
  X(MF_UNSUPPORTED, unsupported)                             \
  X(MF_INVALID_ARGUMENT, invalid_argument)                   \
  X(MF_OUT_OF_MEMORY, out_of_memory)                         \
  X(MF_CANCELLED, cancelled)                                 \
  X(MF_TOKEN_OUT_OF_RANGE, token_out_of_range)               \
  X(MF_CONTEXT_FULL, context_full)                           \
  X(MF_POSITION_MISMATCH, position_mismatch)                 \
  X(MF_NO_CHECKPOINT, no_checkpoint)                         \
  X(MF_CANNOT_TRUNCATE_RECURRENT, cannot_truncate_recurrent) \
  X(MF_TOKENS_UNKNOWN, tokens_unknown)                       \
  X(MF_BUFFER_TOO_SMALL, buffer_too_small)                   \
  X(MF_BAD_MAGIC, bad_magic)                                 \
  X(MF_BAD_VERSION, bad_version)                             \
  X(MF_SHAPE_MISMATCH, shape_mismatch)                       \
  X(MF_NEGATIVE_LENGTH, negative_length)                     \
  X(MF_LENGTH_OVERFLOW, length_overflow)                     \
  X(MF_UNEQUAL_LENGTHS, unequal_lengths)                     \
  X(MF_TRUNCATED, truncated)                                 \
  X(MF_TRAILING_BYTES, trailing_bytes)                       \
  X(MF_WRONG_MODEL, wrong_model)                             \
  X(MF_WRONG_NUMERICS, wrong_numerics)                       \
  X(MF_BAD_CHECKSUM, bad_checksum)

namespace moeflux {

// A new ErrorCode does not compile until it has a line above, and with it a number in moeflux.h.
mf_status status_of(ErrorCode code) {
  switch (code) {
#define MF_CASE(in_c, in_library) \
  case ErrorCode::in_library: return in_c;
    MF_EACH_CODE(MF_CASE)
#undef MF_CASE
  }
  return MF_INTERNAL;
}

mf_status fail(mf_message* why, mf_status status, std::string_view message) noexcept {
  if (why == nullptr) return status;
  std::size_t size = std::min(message.size(), sizeof(why->text) - 1);
  if (size < message.size())
    while (size > 0 && is_utf8_continuation(message[size])) --size;
  std::memcpy(why->text, message.data(), size);
  why->text[size] = '\0';
  return status;
}

Error null_argument(std::string_view name) {
  return {ErrorCode::invalid_argument, fmt::format("{} is NULL", name)};
}

Error wrong_struct_size(std::string_view name, std::size_t expected, std::size_t found) {
  return {ErrorCode::invalid_argument,
          fmt::format("struct_size of {}: expected {}, found {}; set it to sizeof", name, expected, found)};
}

Error unknown_option(std::string_view name) {
  return {ErrorCode::unsupported,
          fmt::format("{} has an option that this library, {}, does not know yet", name, MOEFLUX_VERSION)};
}

}  // namespace moeflux

const char* mf_status_name(mf_status status) {
  switch (status) {
    case MF_OK: return "ok";
#define MF_CASE(in_c, in_library) \
  case in_c: return #in_library;
      MF_EACH_CODE(MF_CASE)
#undef MF_CASE
    case MF_INTERNAL: return "internal";
  }
  return "unknown";
}
