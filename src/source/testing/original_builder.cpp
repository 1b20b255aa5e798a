#include "source/testing/original_builder.h"

#include <fmt/format.h>

#include "base/check.h"

namespace moeflux {
namespace {

std::string_view bytes_of(const SafetensorsBuilder& built, const Json& header, const std::string& name) {
  const Json& offsets = header.at(name).at("data_offsets");
  const auto begin = offsets.at(0).get<std::size_t>();
  return std::string_view(built.data()).substr(begin, offsets.at(1).get<std::size_t>() - begin);
}

// Experts back to back, each in nine parts: codes, scales and biases of gate, of up and of down.
std::string pack_layer(const SafetensorsBuilder& built, const Json& header, const std::string& switch_mlp,
                       std::size_t experts) {
  std::string packed;
  for (std::size_t e = 0; e < experts; ++e)
    for (const char* matrix : {"gate_proj", "up_proj", "down_proj"})
      for (const char* part : {"weight", "scales", "biases"}) {
        const std::string_view all =
            bytes_of(built, header, fmt::format("{}.{}.{}", switch_mlp, matrix, part));
        const std::size_t size = all.size() / experts;
        packed += all.substr(e * size, size);
      }
  return packed;
}

}  // namespace

void OriginalArtifacts::write(const TemporaryDirectory& directory, const std::string& artifacts,
                              const std::string& root) const {
  directory.write(artifacts + "/model_weights.bin", weights);
  directory.write(artifacts + "/model_weights.json", manifest.dump(1));
  for (std::size_t i = 0; i < layers.size(); ++i)
    if (!layers[i].empty())
      directory.write(fmt::format("{}/{}/layer_{:02}.bin", root, experts_folder, i), layers[i]);
}

OriginalArtifacts original_of(const TinyCheckpoint& tiny) {
  const SafetensorsBuilder built = tiny.safetensors();
  const Json header = Json::parse(built.header());
  constexpr std::string_view kPrefix = "language_model.";
  OriginalArtifacts original;
  Json tensors = Json::object();
  for (const TestTensor& tensor : tiny.tensors) {
    if (tensor.name.find(".switch_mlp.") != std::string::npos) continue;
    original.weights.resize((original.weights.size() + 63) / 64 * 64);
    const std::string_view bytes = bytes_of(built, header, tensor.name);
    std::string name = tensor.name;
    if (name.starts_with(kPrefix)) name.erase(0, kPrefix.size());
    Json& entry = tensors[name];
    entry = {{"offset", original.weights.size()},
             {"size", bytes.size()},
             {"shape", tensor.shape},
             {"dtype", name_of(tensor.dtype)}};
    const bool gate = name.ends_with("mlp.gate.weight") || name.ends_with("shared_expert_gate.weight");
    if (tensor.dtype == Dtype::u32) entry["bits"] = gate ? 8u : 4u;
    original.weights += bytes;
  }
  const auto layers = tiny.config.at("num_hidden_layers").get<std::size_t>();
  for (std::size_t i = 0; i < layers; ++i) {
    for (const char* body : {"language_model.model.layers.", "model.layers."}) {
      const std::string module = fmt::format("{}{}.mlp.switch_mlp", body, i);
      if (header.contains(module + ".gate_proj.weight"))
        original.layers.push_back(pack_layer(built, header, module, 4));
    }
    if (original.layers.size() == i) original.layers.emplace_back();
  }

  Json config = tiny.config;
  config.erase("quantization");
  config.erase("model_type");
  config.erase("max_position_embeddings");
  config.erase("norm_topk_prob");
  config.erase("eos_token_id");
  config["default_bits"] = 4u;
  config["default_group_size"] = 64u;
  original.manifest = {{"model", "tiny"},
                       {"num_tensors", tensors.size()},
                       {"tensors", std::move(tensors)},
                       {"config", std::move(config)}};
  return original;
}

}  // namespace moeflux
