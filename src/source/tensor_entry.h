#pragma once
// One tensor as a foreign file lists it: a name, a type, a shape, and the bytes that hold it.
// Plain values.

#include <cstdint>
#include <string>
#include <vector>

#include "base/ids.h"
#include "quant/dtype.h"

namespace moeflux {

using FileId = Id<struct FileTag>;  // a file of one source, in the order in which it was opened

// Bytes of one file of a source. An empty range means: this encoding has no such part.
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
