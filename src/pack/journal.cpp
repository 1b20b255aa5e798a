#include "pack/journal.h"

#include <fmt/format.h>

#include "base/json/json.h"
#include "base/json/object_reader.h"
#include "io/atomic_file.h"
#include "model/manifest.h"

namespace moeflux {
namespace {

constexpr JsonLimits kLineLimits{.bytes = 32 * kMiB, .depth = 4, .values = 1024 * 1024};

std::string line_of(const std::string& name, const FinishedFile& file) {
  Json checksums = Json::array(), digests = Json::array();
  for (const std::uint64_t checksum : file.checksums) checksums.push_back(hex_of(checksum));
  for (const Digest& digest : file.digests) digests.push_back(hex_of(digest));
  const Json line{
      {"file", name}, {"bytes", file.bytes}, {"xxh3", std::move(checksums)}, {"source", std::move(digests)}};
  return line.dump() + "\n";
}

std::optional<std::pair<std::string, FinishedFile>> parse_line(std::string_view line) {
  const Result<Json> json = parse_json(line, "journal", kLineLimits);
  if (!json || !json->is_object()) return std::nullopt;
  const ObjectReader reader(*json, "journal");
  const auto name = reader.text("file");
  const Json* bytes = reader.value("bytes");
  const auto checksums = reader.texts("xxh3", 1u << 20);
  const auto digests = reader.texts("source", 1u << 20);
  if (!name || bytes == nullptr || !bytes->is_number_unsigned() || !checksums || !digests)
    return std::nullopt;
  FinishedFile file;
  file.bytes = bytes->get<std::uint64_t>();
  for (const std::string& text : *checksums) {
    const auto checksum = checksum_from_hex(text);
    if (!checksum) return std::nullopt;
    file.checksums.push_back(*checksum);
  }
  for (const std::string& text : *digests) {
    const auto digest = digest_from_hex(text);
    if (!digest) return std::nullopt;
    file.digests.push_back(*digest);
  }
  return std::pair{*name, std::move(file)};
}

}  // namespace

Result<Journal> Journal::open(FileSystem& files, const std::filesystem::path& directory,
                              const Digest& identity) {
  Journal journal(files, directory, identity);
  const std::filesystem::path path = directory / kJournalName;
  MF_TRY(const bool there, files.exists(path));
  if (!there) return journal;
  journal.on_disk_ = true;
  MF_TRY(const std::string text, files.read_text(path, kLineLimits.bytes));
  std::string_view rest = text;
  bool first = true;
  while (!rest.empty()) {
    const std::size_t end = rest.find('\n');
    if (end == std::string_view::npos) break;
    const std::string_view line = rest.substr(0, end);
    rest.remove_prefix(end + 1);
    if (first && line != hex_of(identity))
      return Error{
          ErrorCode::invalid_argument,
          fmt::format("{}: an unfinished pack of another source or with other options is here; remove it or "
                      "choose another destination",
                      directory.string())};
    if (!first)
      if (auto entry = parse_line(line))
        journal.entries_.insert_or_assign(entry->first, std::move(entry->second));
    first = false;
  }
  return journal;
}

std::string Journal::text() const {
  std::string text = hex_of(identity_) + "\n";
  for (const auto& [name, file] : entries_) text += line_of(name, file);
  return text;
}

Result<std::optional<FinishedFile>> Journal::finished(const std::string& name) {
  const auto entry = entries_.find(name);
  if (entry == entries_.end()) return std::optional<FinishedFile>{};
  MF_TRY(const bool there, files_->exists(directory_ / name));
  if (!there) return std::optional<FinishedFile>{};
  MF_TRY(const FileInfo info, files_->info(directory_ / name));
  if (info.kind != FileKind::regular || info.size_bytes != entry->second.bytes)
    return std::optional<FinishedFile>{};
  return std::optional(entry->second);
}

Status Journal::begin() {
  if (on_disk_) return {};
  on_disk_ = true;
  return write();
}

Status Journal::add(const std::string& name, FinishedFile file) {
  entries_.insert_or_assign(name, std::move(file));
  return write();
}

Status Journal::write() const {
  const std::string lines = text();
  return write_file_atomically(*files_, directory_ / kJournalName, std::as_bytes(std::span(lines)));
}

Status Journal::remove() { return files_->remove_all(directory_ / kJournalName); }

}  // namespace moeflux
