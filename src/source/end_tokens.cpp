#include "source/end_tokens.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <utility>

#include "source/model_config.h"

namespace moeflux {

void append_new(std::vector<TokenId>& tokens, std::span<const TokenId> more) {
  for (const TokenId token : more)
    if (std::ranges::find(tokens, token) == tokens.end()) tokens.push_back(token);
}

Result<TextJson> read_text_json(FileSystem& files, std::span<const std::filesystem::path> folders,
                                std::string_view name) {
  for (const std::filesystem::path& folder : folders) {
    const std::filesystem::path path = folder / name;
    MF_TRY(const bool is_there, files.exists(path));
    if (!is_there) continue;
    MF_TRY(const std::string text, files.read_text(path, kMaxConfigBytes));
    MF_TRY(Json document, parse_json(text, path.string()));
    if (const auto object = ObjectReader::as_object(document, path.string()); !object) return object.error();
    return TextJson{std::move(document), path.string()};
  }
  return TextJson();
}

Result<std::vector<TokenId>> list_end_tokens(const ObjectReader& config, const ObjectReader& generation,
                                             std::span<const TokenId> family, std::uint32_t vocabulary,
                                             Notes& notes) {
  std::vector<TokenId> tokens;
  MF_TRY(const std::vector<TokenId> outer, read_end_tokens(config, vocabulary));
  append_new(tokens, outer);
  MF_TRY(const std::vector<TokenId> chosen, read_end_tokens(generation, kMaxDim));
  for (const TokenId token : chosen) {
    if (token.index() < vocabulary)
      append_new(tokens, std::span(&token, 1));
    else
      notes.push_back(fmt::format("{}: 'eos_token_id' {} is ignored: the vocabulary has {} tokens",
                                  generation.where(), token.index(), vocabulary));
  }
  append_new(tokens, family);
  if (config.has("text_config")) {
    MF_TRY(const ObjectReader text, config.object("text_config"));
    MF_TRY(const std::vector<TokenId> inner, read_end_tokens(text, vocabulary));
    append_new(tokens, inner);
  }
  return tokens;
}

std::span<const TokenId> family_end_tokens(Family family, std::uint32_t vocabulary) {
  // <|im_end|> and <|endoftext|>
  static constexpr std::array kQwen{TokenId(248046), TokenId(248044)};
  static constexpr std::array kDeepseek{TokenId(1)};  // <｜end▁of▁sentence｜>
  switch (family) {
    case Family::qwen3_5_moe:
      if (vocabulary == 248320) return kQwen;
      break;
    case Family::deepseek_v3:
      if (vocabulary == 129280 || vocabulary == 128815) return kDeepseek;  // the second is Cogito v2's
      break;
  }
  return {};
}

}  // namespace moeflux
