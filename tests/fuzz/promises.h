#pragma once
// The promises that the fuzz targets check for every parser. A broken promise aborts with its text, which
// libFuzzer reports as a crash. Pure functions, thread-safe.

#include <algorithm>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/arithmetic.h"
#include "base/check.h"
#include "base/json/object_reader.h"
#include "base/printable.h"
#include "base/result.h"
#include "model/config.h"
#include "source/notes.h"
#include "source/safetensors/safetensors.h"
#include "source/safetensors/tensor_entry.h"

namespace moeflux::fuzz {

inline std::string_view text_of(const std::uint8_t* data, std::size_t size) {
  return {reinterpret_cast<const char*>(data), size};
}

// A message quotes parts of its file: it is one line, short, and harmless on a terminal.
inline void require_fit_for_people(std::string_view message) {
  MF_REQUIRE(!message.empty(), "a message says something");
  MF_REQUIRE(message.size() < 2000, "a message is short, however long what it quotes is");
  MF_REQUIRE(printable(message, message.size()) == message, "a message has no control characters");
}

// The errors that the content of a file can cause.
inline void require_refusal(const Error& error) {
  require_fit_for_people(error.message());
  MF_REQUIRE(error.code() == ErrorCode::corrupt_data || error.code() == ErrorCode::unsupported,
             "a document is refused as corrupt or unsupported");
}

inline void require_notes(const Notes& notes) {
  for (const std::string& note : notes) require_fit_for_people(note);
}

// The tensor lies in [begin, end) of its file, and its shape and type fill its bytes.
inline void require_inside(const TensorEntry& tensor, std::uint64_t begin, std::uint64_t end) {
  const ByteRange& bytes = tensor.bytes;
  MF_REQUIRE(bytes.offset >= begin && bytes.offset <= end && bytes.size <= end - bytes.offset,
             "a tensor lies inside its file");
  MF_REQUIRE(tensor.shape.size() <= kMaxTensorRank, "a tensor has few dimensions");
  const auto elements = checked_product(tensor.shape);
  MF_REQUIRE(elements.has_value(), "the number of elements fits in 64 bits");
  const auto bits = checked_multiply(*elements, bits_of(tensor.dtype));
  MF_REQUIRE(bits.has_value() && *bits % 8 == 0 && *bits / 8 == bytes.size, "the shape fills the bytes");
}

// Total bytes of all tensors; no two may overlap.
inline std::uint64_t require_disjoint(std::span<const TensorEntry> tensors) {
  std::vector<ByteRange> ranges;
  for (const TensorEntry& tensor : tensors)
    if (tensor.bytes.size > 0) ranges.push_back(tensor.bytes);
  std::sort(ranges.begin(), ranges.end(),
            [](const ByteRange& a, const ByteRange& b) { return a.offset < b.offset; });
  std::uint64_t total = 0;
  for (std::size_t i = 0; i < ranges.size(); ++i) {
    MF_REQUIRE(i == 0 || ranges[i - 1].offset + ranges[i - 1].size <= ranges[i].offset, "no two overlap");
    total += ranges[i].size;
  }
  return total;
}

// A config that exists is a config that runs.
void require_runnable(const ModelConfig& config);

}  // namespace moeflux::fuzz
