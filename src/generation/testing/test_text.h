#pragma once
// Shared by the tests of this folder: Tern's text, and a listener that records its events. One thread at a
// time.

#include <gtest/gtest.h>

#include <filesystem>
#include <string>
#include <vector>

#include "generation/generation.h"
#include "io/posix_file_system.h"

namespace moeflux {

inline std::filesystem::path tern_directory() {
  return std::filesystem::path(MOEFLUX_REPOSITORY) / "models" / "tern";
}

inline const ModelText& tern_text() {
  static const ModelText text = [] {
    PosixFileSystem files;
    Result<ModelText> opened = ModelText::open(files, tern_directory());
    EXPECT_TRUE(opened) << opened.error().message();
    return *std::move(opened);
  }();
  return text;
}

inline std::vector<TokenId> tokens_of(std::string_view words) {
  std::vector<TokenId> tokens;
  EXPECT_TRUE(tern_text().tokenizer().encode(words, AddedTokens::all, tokens));
  return tokens;
}

class Listener : public GenerationListener {
 public:
  void read_prompt(std::uint32_t done, std::uint32_t total) override { prompt.emplace_back(done, total); }
  void chose(const ChosenToken& token) override {
    tokens.push_back(token.token);
    bytes += token.bytes;
    top_sizes.push_back(token.top.size());
  }
  void said(const ReplyEvent& event) override {
    if (const auto* said = std::get_if<ReplyText>(&event)) text += said->text;
    if (const auto* said = std::get_if<ReplyReasoning>(&event)) reasoning += said->text;
    if (const auto* call = std::get_if<ToolCallFinished>(&event))
      calls.push_back(std::string(call->name) + std::string(call->arguments_json));
  }
  bool wants_more() const override { return tokens.size() < enough; }

  std::vector<std::pair<std::uint32_t, std::uint32_t>> prompt;
  std::vector<TokenId> tokens;
  std::vector<std::size_t> top_sizes;
  std::string bytes, text, reasoning;
  std::vector<std::string> calls;
  std::size_t enough = ~std::size_t{0};
};

}  // namespace moeflux
