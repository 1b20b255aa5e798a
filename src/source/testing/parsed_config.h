#pragma once
// Parses a config.json, for tests that change one key in it. Test code only. One thread at a time.

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <initializer_list>
#include <iterator>
#include <string>
#include <utility>

#include "source/model_config.h"
#include "source/notes.h"

namespace moeflux {

struct ParsedConfig {
  Result<ModelConfig> model = Error{ErrorCode::cancelled, "not parsed"};
  Notes notes;

  explicit operator bool() const { return model.has_value(); }
  const ModelConfig* operator->() const { return &*model; }
  const ModelConfig& operator*() const { return *model; }
  std::string message() const { return model ? "no error" : model.error().message(); }
};

// Goes through text, so that numbers have the types that the parser gives them.
inline ParsedConfig parsed(const Json& config) {
  ParsedConfig result;
  const auto document = parse_json(config.dump(), "config.json");
  EXPECT_TRUE(document) << document.error().message();
  if (document) result.model = parse_model_config(ObjectReader(*document, "config.json"), result.notes);
  return result;
}

inline Json read_config(const std::filesystem::path& directory) {
  std::ifstream in(directory / "config.json");
  return Json::parse(std::string(std::istreambuf_iterator<char>(in), {}));
}

// A copy of `config` with some values replaced.
inline Json with(Json config, std::initializer_list<std::pair<const char*, Json>> changes) {
  for (const auto& [key, value] : changes) config[key] = value;
  return config;
}
inline Json without(Json config, std::initializer_list<const char*> keys) {
  for (const char* key : keys) EXPECT_EQ(config.erase(key), 1u) << key;
  return config;
}

}  // namespace moeflux
