// Input: a complete safetensors file. It is read unchanged, and once more as if 1 MiB of data followed, so
// that headers with plausible offsets pass the check of the file's size.

#include <cstring>

#include "fuzz/promises.h"
#include "source/safetensors/safetensors.h"

namespace moeflux::fuzz {
namespace {

class MemoryFile final : public ReadFile {
 public:
  MemoryFile(std::string_view content, std::uint64_t zeros)
      : ReadFile("model.safetensors"), content_(content), size_(content.size() + zeros) {}

  Result<std::uint64_t> size() const override { return size_; }

  // In pieces, as a file system may do.
  Result<std::size_t> read_some(std::uint64_t offset, std::span<std::byte> out) const override {
    if (offset >= size_) return std::size_t{0};
    const std::size_t count = std::min<std::uint64_t>({out.size(), size_ - offset, 4093});
    std::memset(out.data(), 0, count);
    if (offset < content_.size())
      std::memcpy(out.data(), content_.data() + offset, std::min(count, content_.size() - offset));
    return count;
  }

 private:
  std::string_view content_;
  std::uint64_t size_;
};

void read_header(std::string_view content, std::uint64_t zeros) {
  const MemoryFile file(content, zeros);
  const std::uint64_t file_bytes = content.size() + zeros;
  const Result<SafetensorsHeader> header = read_safetensors_header(file, FileId(3));
  if (!header) {
    require_refusal(header.error());
    return;
  }
  const std::vector<TensorEntry>& tensors = header->tensors;
  MF_REQUIRE(header->header_bytes >= 8 && header->header_bytes <= file_bytes, "the header is in the file");
  MF_REQUIRE(tensors.size() <= kMaxTensorsInFile, "the table is bounded");
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    MF_REQUIRE(i == 0 || tensors[i - 1].name < tensors[i].name, "names ascend and occur once");
    MF_REQUIRE(tensors[i].bytes.file == FileId(3), "a tensor knows its file");
    require_inside(tensors[i], header->header_bytes, file_bytes);
  }
  MF_REQUIRE(require_disjoint(tensors) + header->unclaimed_bytes == file_bytes - header->header_bytes,
             "what no tensor claims is counted");
}

}  // namespace
}  // namespace moeflux::fuzz

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view content = moeflux::fuzz::text_of(data, size);
  moeflux::fuzz::read_header(content, 0);
  moeflux::fuzz::read_header(content, 1u << 20);
  return 0;
}
