#pragma once
// Writes safetensors files for tests, independently of the code that reads them. Test code only.
// Plain values; one thread at a time.

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/json/json.h"
#include "io/testing/temporary_directory.h"
#include "quant/dtype.h"
#include "source/tensor_catalog.h"

namespace moeflux {

using Shape = std::vector<std::uint64_t>;

// Lays out tensors in the order they were added, without gaps.
class SafetensorsBuilder {
 public:
  SafetensorsBuilder& add(std::string_view name, Dtype dtype, const Shape& shape, std::string_view bytes);
  // Fills the shape with bytes that differ from one position to the next.
  SafetensorsBuilder& add(std::string_view name, Dtype dtype, const Shape& shape);
  // Bytes that belong to no tensor.
  SafetensorsBuilder& gap(std::size_t bytes);
  SafetensorsBuilder& metadata(Json value);

  std::string header() const { return header_.dump(); }  // the JSON
  const std::string& data() const { return data_; }
  std::string file() const;

 private:
  Json header_ = Json::object();
  std::string data_;
};

// A file with this header, valid or not: the length field, the JSON, the data.
std::string safetensors_file(std::string_view header, std::string_view data);

// The bytes of `numbers` as stored in a file.
template <class T>
std::string raw(const std::vector<T>& numbers) {
  return {reinterpret_cast<const char*>(numbers.data()), numbers.size() * sizeof(T)};
}

// Writes the builder's file as `name`; returns a catalog of it.
TensorCatalog catalog_of(FileSystem& files, const TemporaryDirectory& directory,
                         const SafetensorsBuilder& builder, std::string_view name = "model.safetensors");

}  // namespace moeflux
