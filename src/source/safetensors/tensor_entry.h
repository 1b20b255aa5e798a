#pragma once
// One tensor as listed in a source: a name, a dtype, a shape, and its bytes.
// Plain values.

#include <cstdint>
#include <string>
#include <vector>

#include "base/ids.h"
#include "quant/dtype.h"

namespace moeflux {

using FileId = Id<struct FileTag>;  // a file of one source, numbered in opening order

// A range of bytes in one file of a source. Empty if the encoding has no such part.
struct ByteRange {
  FileId file{0};
  std::uint64_t offset = 0;
  std::uint64_t size = 0;
  friend bool operator==(const ByteRange&, const ByteRange&) = default;
};

struct TensorEntry {
  std::string name;
  Dtype dtype;
  std::vector<std::uint64_t> shape;
  ByteRange bytes;  // shape and dtype fill it exactly
};

// "[512, 2048]".
std::string describe_shape(const std::vector<std::uint64_t>& shape);

}  // namespace moeflux
