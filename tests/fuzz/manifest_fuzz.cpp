// Input: a manifest.json.

#include "fuzz/promises.h"
#include "model/manifest.h"

namespace moeflux::fuzz {
namespace {

struct Range {
  std::uint64_t offset, bytes;
};

// All lie in a file of `file_bytes`, aligned, without overlaps.
void require_apart(std::vector<Range> ranges, std::uint64_t alignment, std::uint64_t file_bytes) {
  std::sort(ranges.begin(), ranges.end(), [](const Range& a, const Range& b) { return a.offset < b.offset; });
  std::uint64_t end = 0;
  for (const Range& range : ranges) {
    MF_REQUIRE(range.offset % alignment == 0, "a range is aligned");
    MF_REQUIRE(range.bytes > 0 && range.offset >= end, "no two ranges overlap");
    MF_REQUIRE(range.offset <= file_bytes && range.bytes <= file_bytes - range.offset,
               "a range lies inside its file");
    end = range.offset + range.bytes;
  }
}

void require_tensors(const Manifest& manifest) {
  std::vector<Range> ranges;
  for (const PackedTensor& tensor : manifest.tensors) {
    require_fit_for_people(tensor.name);
    MF_REQUIRE(tensor.bytes == packed_bytes(tensor.format, tensor.layout), "a tensor fills its bytes");
    ranges.push_back({tensor.offset, tensor.bytes});
  }
  require_apart(std::move(ranges), kTensorAlignment, manifest.resident_bytes);
  MF_REQUIRE(manifest.tensors.back().name == "embed_tokens", "embed_tokens is last");
}

void require_experts(const Manifest& manifest) {
  std::size_t moe_layers = 0;
  for (const LayerConfig& layer : manifest.config.layers)
    moe_layers += std::holds_alternative<MoeConfig>(layer.mlp);
  MF_REQUIRE(manifest.experts.size() == moe_layers, "every layer with experts has its file");
  for (const ExpertFile& file : manifest.experts) {
    require_fit_for_people(file.file);
    MF_REQUIRE(file.layer.index() < manifest.config.layers.size(), "the layer exists");
    const auto& moe = std::get<MoeConfig>(manifest.config.layers[file.layer.index()].mlp);
    MF_REQUIRE(file.records.size() == moe.experts, "every expert has its record");
    std::vector<Range> ranges;
    for (const ExpertRecord& record : file.records) {
      MF_REQUIRE(record.format < manifest.expert_formats.size(), "the format exists");
      const ExpertFormat& format = manifest.expert_formats[record.format];
      MF_REQUIRE(format.gate.rows == moe.hidden_dim && format.gate.cols == manifest.config.dim &&
                     format.down.rows == manifest.config.dim && format.down.cols == moe.hidden_dim,
                 "an expert has the shape of its layer");
      const RecordLayout layout = record_layout(format);
      MF_REQUIRE(layout.record_bytes == record.bytes && layout.down_offset % kRecordAlignment == 0 &&
                     layout.gate_up_bytes <= layout.down_offset &&
                     layout.down_bytes <= layout.record_bytes - layout.down_offset,
                 "a record has room for its parts");
      ranges.push_back({record.offset, record.bytes});
    }
    require_apart(std::move(ranges), kRecordAlignment, file.bytes);
  }
}

void read(std::string_view text) {
  const Result<Manifest> manifest = parse_manifest(text, "manifest.json");
  if (!manifest) return require_refusal(manifest.error());
  require_runnable(manifest->config);
  require_tensors(*manifest);
  require_experts(*manifest);

  const Result<Manifest> again = parse_manifest(write_manifest(*manifest), "manifest.json");
  MF_REQUIRE(again.has_value(), "what was written can be read");
  MF_REQUIRE(*again == *manifest, "what was read back is what was written");
}

}  // namespace
}  // namespace moeflux::fuzz

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  moeflux::fuzz::read(moeflux::fuzz::text_of(data, size));
  return 0;
}
