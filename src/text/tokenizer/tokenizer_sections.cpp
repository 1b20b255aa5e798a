#include "text/tokenizer/tokenizer_sections.h"

#include <fmt/format.h>

#include <string>
#include <utility>

#include "base/json/object_reader.h"
#include "base/printable.h"
#include "text/tokenizer/tokenizer_json.h"

namespace moeflux {
namespace {

Error unsupported_type(const ObjectReader& reader, std::string_view type) {
  return {ErrorCode::unsupported,
          fmt::format("{}: the type '{}' is not supported", reader.where(), printable(type, 40))};
}

// Calls `visit` for a section, or for the members of a Sequence.
template <class Visit>
Status visit_members(const Json& section, std::string_view where, std::string_view members_key, Visit&& visit,
                     int depth = 0) {
  MF_TRY(const ObjectReader reader, ObjectReader::as_object(section, std::string(where)));
  MF_TRY(const std::string type_text, reader.text("type"));
  const std::string_view type = type_text;  // g++ 12 -O3 warns that a string from a Result is uninitialized
  if (type != "Sequence") return visit(reader, type);
  const Json* members = reader.value(members_key);
  if (members == nullptr || !members->is_array()) return reader.wrong(members_key, "an array");
  if (depth == kMaxSequenceDepth)
    return Error{ErrorCode::unsupported, fmt::format("{}: sequences nested deeply", where)};
  std::size_t i = 0;
  for (const Json& member : *members)
    MF_TRY_STATUS(visit_members(member, fmt::format("{}[{}]", where, i++), members_key, visit, depth + 1));
  return {};
}

Result<AddedToken> read_added_token(const Json& section, std::string where) {
  MF_TRY(const ObjectReader reader, ObjectReader::as_object(section, std::move(where)));
  MF_TRY(const std::uint32_t id, reader.size("id", kMaxTokenIds - 1, 0));
  AddedToken token{.id = TokenId{id}, .content = {}};
  MF_TRY(token.content, reader.text("content"));
  MF_TRY(token.special, reader.boolean("special"));
  MF_TRY(token.normalized, reader.boolean("normalized"));
  MF_TRY(token.single_word, reader.boolean("single_word"));
  MF_TRY(token.lstrip, reader.boolean("lstrip"));
  MF_TRY(token.rstrip, reader.boolean("rstrip"));
  if (token.content.size() > kLongestAddedToken)
    return Error{ErrorCode::unsupported,
                 fmt::format("{}: a content of {} bytes, expected at most {}", reader.where(),
                             token.content.size(), kLongestAddedToken)};
  return token;
}

// {"SpecialToken": {"id": "<s>", ...}} means the ids of "<s>" in "special_tokens".
Status read_template(const ObjectReader& reader, Surroundings& into) {
  const Json* single = reader.value("single");
  if (single == nullptr || !single->is_array()) return reader.wrong("single", "an array");
  MF_TRY(const ObjectReader special, reader.object("special_tokens"));
  bool after_text = false;
  for (const Json& element : *single) {
    MF_TRY(const ObjectReader item, ObjectReader::as_object(element, reader.where() + ".single"));
    if (item.has("Sequence")) {
      after_text = true;
      continue;
    }
    MF_TRY(const ObjectReader token, item.object("SpecialToken"));
    MF_TRY(const std::string name, token.text("id"));
    MF_TRY(const ObjectReader definition, special.object(name));
    const Json* ids = definition.value("ids");
    if (ids == nullptr || !ids->is_array()) return definition.wrong("ids", "an array");
    for (const Json& id : *ids) {
      const auto* number = id.get_ptr<const std::uint64_t*>();
      if (number == nullptr || *number >= kMaxTokenIds) return definition.wrong("ids", "token ids");
      (after_text ? into.end : into.begin).push_back(TokenId{static_cast<std::uint32_t>(*number)});
    }
  }
  return {};
}

}  // namespace

Result<std::vector<AddedToken>> read_added_tokens(const Json& section, std::string_view where) {
  std::vector<AddedToken> tokens;
  if (section.is_null()) return tokens;
  if (!section.is_array())
    return Error{ErrorCode::corrupt_data,
                 fmt::format("{}: expected an array, found {}", where, shown(section))};
  std::size_t i = 0;
  for (const Json& element : section) {
    MF_TRY(AddedToken token, read_added_token(element, fmt::format("{}[{}]", where, i++)));
    if (!token.content.empty()) tokens.push_back(std::move(token));
  }
  return tokens;
}

Result<Normalizer> read_normalizer(const Json& section, std::string_view where) {
  std::vector<NormalForm> forms;
  if (section.is_null()) return Normalizer{};
  constexpr std::pair<std::string_view, NormalForm> kForms[] = {{"NFC", NormalForm::nfc},
                                                                {"NFD", NormalForm::nfd},
                                                                {"NFKC", NormalForm::nfkc},
                                                                {"NFKD", NormalForm::nfkd}};
  MF_TRY_STATUS(visit_members(section, where, "normalizers",
                              [&](const ObjectReader& reader, std::string_view type) -> Status {
                                for (const auto& [name, form] : kForms)
                                  if (type == name) {
                                    // Repeating a form changes nothing.
                                    if (forms.empty() || forms.back() != form) forms.push_back(form);
                                    return {};
                                  }
                                return unsupported_type(reader, type);
                              }));
  return Normalizer(std::move(forms));
}

Status check_decoder(const Json& section, std::string_view where) {
  int byte_levels = 0;
  MF_TRY_STATUS(visit_members(section, where, "decoders",
                              [&](const ObjectReader& reader, std::string_view type) -> Status {
                                if (type != "ByteLevel" || ++byte_levels > 1)
                                  return unsupported_type(reader, type);
                                return {};
                              }));
  if (byte_levels == 1) return {};
  return Error{ErrorCode::unsupported, fmt::format("{}: expected ByteLevel", where)};
}

Result<BpeOptions> read_bpe_options(const Json& section, std::string_view where) {
  MF_TRY(const ObjectReader reader, ObjectReader::as_object(section, std::string(where)));
  MF_TRY_STATUS(reader.only("type", "BPE"));
  MF_TRY_STATUS(reader.only("dropout", 0.0));
  MF_TRY_STATUS(reader.only("continuing_subword_prefix", ""));
  MF_TRY_STATUS(reader.only("end_of_word_suffix", ""));
  BpeOptions options{};
  if (reader.has("ignore_merges")) {
    MF_TRY(options.ignore_merges, reader.boolean("ignore_merges"));
  }
  if (reader.has("byte_fallback")) {
    MF_TRY(options.has_fallback, reader.boolean("byte_fallback"));
  }
  options.has_fallback |= reader.has("unk_token");
  return options;
}

Result<Surroundings> read_post_processor(const Json& section, std::string_view where) {
  Surroundings surroundings;
  if (section.is_null()) return surroundings;
  MF_TRY_STATUS(visit_members(section, where, "processors",
                              [&](const ObjectReader& reader, std::string_view type) -> Status {
                                if (type == "ByteLevel")
                                  return {};  // only changes offsets, which are not used
                                if (type == "TemplateProcessing") return read_template(reader, surroundings);
                                return unsupported_type(reader, type);
                              }));
  return surroundings;
}

}  // namespace moeflux
