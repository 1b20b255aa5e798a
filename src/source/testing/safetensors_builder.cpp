#include "source/testing/safetensors_builder.h"

#include <functional>
#include <numeric>

#include "base/check.h"
#include "source/safetensors/safetensors.h"

namespace moeflux {

SafetensorsBuilder& SafetensorsBuilder::add(std::string_view name, Dtype dtype, const Shape& shape,
                                            std::string_view bytes) {
  const std::size_t begin = data_.size();
  data_ += bytes;
  header_[std::string(name)] = {
      {"dtype", name_of(dtype)}, {"shape", shape}, {"data_offsets", {begin, data_.size()}}};
  return *this;
}

SafetensorsBuilder& SafetensorsBuilder::add(std::string_view name, Dtype dtype, const Shape& shape) {
  const std::uint64_t elements =
      std::accumulate(shape.begin(), shape.end(), std::uint64_t{1}, std::multiplies<>());
  std::string bytes(elements * bits_of(dtype) / 8, '\0');
  for (std::size_t i = 0; i < bytes.size(); ++i)
    bytes[i] = static_cast<char>(i % 61);  // a finite float in any type
  return add(name, dtype, shape, bytes);
}

SafetensorsBuilder& SafetensorsBuilder::gap(std::size_t bytes) {
  data_.append(bytes, '\0');
  return *this;
}

SafetensorsBuilder& SafetensorsBuilder::metadata(Json value) {
  header_["__metadata__"] = std::move(value);
  return *this;
}

std::string SafetensorsBuilder::file() const { return safetensors_file(header(), data_); }

std::string safetensors_file(std::string_view header, std::string_view data) {
  std::string file = raw(std::vector<std::uint64_t>{header.size()});
  file += header;
  file += data;
  return file;
}

TensorCatalog catalog_of(FileSystem& files, const TemporaryDirectory& directory,
                         const SafetensorsBuilder& builder, std::string_view name) {
  auto file = files.open_read(directory.write(name, builder.file()));
  MF_REQUIRE(file.has_value(), "a file that was just written can be opened");
  TensorCatalog catalog;
  const FileId id = catalog.add_file(*std::move(file));
  auto header = read_safetensors_header(catalog.file(id), id);
  MF_REQUIRE(header.has_value(), "the builder writes a header that can be read");
  MF_REQUIRE(catalog.add_tensors(std::move(header->tensors)).has_value(), "no name is there twice");
  return catalog;
}

}  // namespace moeflux
