// Input: a packed model, its files one after another.
//
//   manifest.json, up to the first byte 0 (or the end)
//   then any number of: u8 file, u32 length, u16 content length, content      (little-endian)
//
// File 0 is resident.bin, 255 is config.json, any other n is experts/layer_{n - 1}.bin. A file that is longer
// than its content is padded with zeros. The directory is opened unchanged, and once more with every file
// extended to the length in the manifest, so that open() succeeds for every valid manifest.

#include <fmt/format.h>

#include <cstring>
#include <limits>
#include <map>
#include <optional>

#include "base/sizes.h"
#include "fuzz/promises.h"
#include "model/manifest.h"
#include "model/packed_model.h"
#include "pack/verify.h"

namespace moeflux::fuzz {
namespace {

constexpr std::uint64_t kMaxBytes = 8 * kMiB;  // that verify may read for one input
const std::filesystem::path kModel = "model";

struct MemoryFile {
  std::string_view content;
  std::uint64_t size = 0;
};
using MemoryFiles = std::map<std::filesystem::path, MemoryFile>;

class OpenMemoryFile final : public ReadFile {
 public:
  OpenMemoryFile(std::filesystem::path path, MemoryFile file) : ReadFile(std::move(path)), file_(file) {}

  Result<std::uint64_t> size() const override { return file_.size; }

  // In pieces, as a file system may.
  Result<std::size_t> read_some(std::uint64_t offset, std::span<std::byte> out) const override {
    if (offset >= file_.size) return std::size_t{0};
    const std::size_t count = std::min<std::uint64_t>({out.size(), file_.size - offset, 1021 * 1021});
    std::memset(out.data(), 0, count);
    if (offset < file_.content.size())
      std::memcpy(out.data(), file_.content.data() + offset, std::min(count, file_.content.size() - offset));
    return count;
  }

 private:
  MemoryFile file_;
};

class MemoryFileSystem final : public FileSystem {
 public:
  explicit MemoryFileSystem(const MemoryFiles& files) : files_(files) {}

  Result<std::unique_ptr<ReadFile>> open_read(const std::filesystem::path& path) override {
    const auto found = files_.find(path);
    if (found == files_.end()) return missing(path);
    return std::unique_ptr<ReadFile>(std::make_unique<OpenMemoryFile>(path, found->second));
  }
  Result<FileInfo> info(const std::filesystem::path& path) override {
    const auto found = files_.find(path);
    if (found == files_.end()) return missing(path);
    return FileInfo{FileKind::regular, found->second.size};
  }
  Result<std::vector<std::string>> list(const std::filesystem::path& path) override { return missing(path); }
  Result<std::unique_ptr<WriteFile>> create(const std::filesystem::path&) override { return read_only(); }
  Status make_directory(const std::filesystem::path&) override { return read_only(); }
  Status rename(const std::filesystem::path&, const std::filesystem::path&) override { return read_only(); }
  Status remove_all(const std::filesystem::path&) override { return read_only(); }
  Status sync_directory(const std::filesystem::path&) override { return read_only(); }
  Result<std::uint64_t> free_bytes(const std::filesystem::path&) override { return read_only(); }

 private:
  static Error missing(const std::filesystem::path& path) {
    return {ErrorCode::not_found, fmt::format("{}: is not there", path.string())};
  }
  static Error read_only() {
    MF_REQUIRE(false, "whoever opens a model writes nothing");
    return {ErrorCode::unsupported, "read-only"};
  }

  const MemoryFiles& files_;
};

std::string name_of_file(std::uint8_t number) {
  if (number == 0) return "resident.bin";
  if (number == 255) return "config.json";
  return fmt::format("experts/layer_{:03}.bin", number - 1);
}

// The entries after the manifest; an incomplete last entry is dropped.
void add_files(std::string_view rest, MemoryFiles& files) {
  while (rest.size() >= 7) {
    std::uint32_t length = 0;
    std::uint16_t content = 0;
    std::memcpy(&length, rest.data() + 1, 4);
    std::memcpy(&content, rest.data() + 5, 2);
    const auto number = static_cast<std::uint8_t>(rest[0]);
    rest.remove_prefix(7);
    const std::string_view bytes = rest.substr(0, std::min<std::size_t>({content, rest.size(), length}));
    rest.remove_prefix(bytes.size());
    files[kModel / name_of_file(number)] = {bytes, length};
  }
}

// The bytes of the files that the manifest names, or nullopt if they take a fuzzer too long.
std::optional<std::uint64_t> bytes_of(const Manifest& manifest) {
  std::uint64_t total = 0;
  const auto add = [&](std::uint64_t bytes) { total = bytes > kMaxBytes ? kMaxBytes + 1 : total + bytes; };
  add(manifest.resident_bytes);
  for (const ExpertFile& file : manifest.experts) {
    add(file.bytes);
    if (total > kMaxBytes) break;
  }
  if (total > kMaxBytes) return std::nullopt;
  return total;
}

void require_coherent(const PackedModel& model) {
  const Manifest& manifest = model.manifest();
  for (const PackedTensor& tensor : manifest.tensors)
    MF_REQUIRE(model.find(tensor.name) == &tensor, "a tensor is found by its name");
  MF_REQUIRE(model.find("no such tensor") == nullptr, "no other is");
  std::uint64_t experts = 0;
  for (const ExpertFile& file : manifest.experts)
    for (std::uint32_t e = 0; e < file.records.size(); ++e, ++experts)
      MF_REQUIRE(&model.record({file.layer, ExpertId(e)}) == &file.records[e], "an expert has its record");
  const ModelSummary summary = model.summarise();
  MF_REQUIRE(summary.experts == experts, "every expert is counted");
  MF_REQUIRE(summary.resident_bytes <= manifest.resident_bytes, "tensors are in resident.bin");
  MF_REQUIRE(summary.smallest_expert_bytes <= summary.largest_expert_bytes, "sizes are ordered");
  MF_REQUIRE(summary.expert_bytes + summary.resident_bytes <= summary.file_bytes,
             "all of it is in the files");
}

void require_verified(const PackedModel& model, std::uint64_t most_bytes) {
  std::uint64_t last = 0;
  const Result<VerifyReport> report = verify(model, 1, [&](std::uint64_t done, std::uint64_t total) {
    MF_REQUIRE(done >= last && done <= total, "progress goes forward");
    last = done;
  });
  MF_REQUIRE(report.has_value(), "every byte can be read");
  MF_REQUIRE(report->bytes == last && last <= most_bytes, "progress ends at the end");
  MF_REQUIRE(report->tensors == model.manifest().tensors.size(), "every tensor is looked at");
  for (const std::string& finding : report->findings) require_fit_for_people(finding);
}

void open(const MemoryFiles& files, bool must_open) {
  MemoryFileSystem memory(files);
  const Result<PackedModel> model = PackedModel::open(memory, kModel);
  if (!model) {
    MF_REQUIRE(!must_open, "a good manifest with its files opens");
    require_fit_for_people(model.error().message());
    const ErrorCode code = model.error().code();
    MF_REQUIRE(
        code == ErrorCode::corrupt_data || code == ErrorCode::unsupported || code == ErrorCode::not_found,
        "a directory is refused as corrupt, unsupported or incomplete");
    return;
  }
  require_coherent(*model);
  if (const auto bytes = bytes_of(model->manifest())) require_verified(*model, *bytes);
}

void read(std::string_view input) {
  const std::size_t end = std::min(input.find('\0'), input.size());
  const std::string_view manifest = input.substr(0, end);
  MemoryFiles files;
  if (end < input.size()) add_files(input.substr(end + 1), files);
  files[kModel / kManifestName] = {manifest, manifest.size()};
  open(files, false);

  const Result<Manifest> parsed = parse_manifest(manifest, "manifest.json");
  if (!parsed) return;
  const auto set_length = [&](const std::string& name, std::uint64_t size) {
    MemoryFile& file = files[kModel / name];
    file.size = size;
    file.content = file.content.substr(0, std::min<std::uint64_t>(file.content.size(), size));
  };
  std::map<std::string, std::uint64_t> lengths{{std::string(kResidentName), parsed->resident_bytes},
                                               {std::string(kManifestName), manifest.size()}};
  for (const ExpertFile& file : parsed->experts)
    if (!lengths.emplace(file.file, file.bytes).second) return;  // a name cannot have two lengths
  for (const auto& [name, size] : lengths) set_length(name, size);
  for (const std::string& name : parsed->text_files) files.try_emplace(kModel / name);
  open(files, true);
}

}  // namespace
}  // namespace moeflux::fuzz

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  moeflux::fuzz::read(moeflux::fuzz::text_of(data, size));
  return 0;
}
