// Input: a model_weights.json, next to a model_weights.bin of 1 MiB.

#include "fuzz/promises.h"
#include "source/original.h"

namespace moeflux::fuzz {
namespace {

void read(std::string_view text) {
  constexpr std::uint64_t kWeightsBytes = 1u << 20;
  Notes notes;
  const Result<OriginalManifest> manifest =
      parse_original_manifest(text, "model_weights.json", kWeightsBytes, FileId(0), notes);
  require_notes(notes);
  if (!manifest) return require_refusal(manifest.error());
  require_runnable(manifest->config);
  MF_REQUIRE(manifest->quantization.method() == Quantization::Method::affine, "the original is affine");
  std::vector<std::string> names;
  for (const TensorEntry& tensor : manifest->tensors) {
    require_inside(tensor, 0, kWeightsBytes);
    names.push_back(tensor.name);
  }
  std::sort(names.begin(), names.end());
  MF_REQUIRE(std::adjacent_find(names.begin(), names.end()) == names.end(), "no name occurs twice");
}

}  // namespace
}  // namespace moeflux::fuzz

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  moeflux::fuzz::read(moeflux::fuzz::text_of(data, size));
  return 0;
}
