#include "source/quantization.h"

#include <fmt/format.h>

#include "base/printable.h"
#include "quant/encoding.h"

namespace moeflux {
namespace {

Result<AffineParameters> affine_parameters(const ObjectReader& reader) {
  if (reader.has("mode")) {
    MF_TRY(const std::string mode, reader.text("mode"));
    if (mode != "affine")
      return Error{ErrorCode::unsupported, fmt::format("{}: quantization mode '{}' is not supported yet; "
                                                       "'affine' is",
                                                       reader.where(), printable(mode))};
  }
  MF_TRY(const std::uint32_t bits, reader.size("bits", 64));
  if (!is_affine_bits(bits)) return reader.wrong("bits", "2, 3, 4, 5, 6 or 8");
  MF_TRY(const std::uint32_t group, reader.size("group_size", 1u << 20));
  if (!is_affine_group(group)) return reader.wrong("group_size", "32, 64 or 128");
  return AffineParameters{bits, group};
}

Status check_fp8(const ObjectReader& reader) {
  MF_TRY(const std::string format, reader.text("fmt"));
  if (format != "e4m3")
    return Error{ErrorCode::unsupported, fmt::format("{}: fp8 format '{}' is not supported; 'e4m3' is",
                                                     reader.where(), printable(format))};
  const Json* block = reader.value("weight_block_size");
  if (block == nullptr) return reader.missing("weight_block_size");
  if (*block != Json::array({Fp8BlockFormat::kBlock, Fp8BlockFormat::kBlock}))
    return Error{ErrorCode::unsupported,
                 fmt::format("{}: 'weight_block_size' is {}, and only [128,128] is supported", reader.where(),
                             printable(block->dump(-1, ' ', false, Json::error_handler_t::replace), 60))};
  return {};
}

// Json preserves the order of keys, which is irrelevant here.
bool differ(const Json& a, const Json& b) { return nlohmann::json(a) != nlohmann::json(b); }

}  // namespace

Quantization Quantization::affine(AffineParameters defaults) {
  Quantization quantization;
  quantization.method_ = Method::affine;
  quantization.defaults_ = defaults;
  return quantization;
}

void Quantization::override_module(std::string module, std::optional<AffineParameters> parameters) {
  overrides_.insert_or_assign(std::move(module), parameters);
}

std::optional<AffineParameters> Quantization::of_module(std::string_view module) const {
  if (const auto found = overrides_.find(module); found != overrides_.end()) return found->second;
  return defaults_;
}

bool Quantization::insists_on(std::string_view module) const {
  const auto found = overrides_.find(module);
  return found != overrides_.end() && found->second.has_value();
}

Result<Quantization> parse_quantization(const ObjectReader& config, Notes& notes) {
  const bool has_mlx = config.has("quantization");
  const bool has_hf = config.has("quantization_config");
  if (!has_mlx && !has_hf) return Quantization{};
  if (has_mlx && has_hf && differ(*config.value("quantization"), *config.value("quantization_config")))
    notes.push_back(fmt::format("{}: 'quantization' and 'quantization_config' differ; 'quantization' is used",
                                config.where()));
  MF_TRY(const ObjectReader reader, config.object(has_mlx ? "quantization" : "quantization_config"));

  if (reader.has("quant_method")) {
    MF_TRY(const std::string method, reader.text("quant_method"));
    if (method != "fp8")
      return Error{
          ErrorCode::unsupported,
          fmt::format("{}: this is a {} checkpoint, which moeflux does not read yet; it reads MLX affine, "
                      "BF16 and FP8 checkpoints",
                      reader.where(), printable(method))};
    MF_TRY_STATUS(check_fp8(reader));
    Quantization quantization;
    quantization.method_ = Quantization::Method::fp8;
    return quantization;
  }
  if (!reader.has("bits") && !reader.has("group_size"))
    return Error{ErrorCode::corrupt_data,
                 fmt::format("{}: has neither 'quant_method' nor 'bits' and 'group_size'", reader.where())};

  MF_TRY(const AffineParameters defaults, affine_parameters(reader));
  Quantization quantization = Quantization::affine(defaults);
  for (const auto& [module, value] :
       config.value(has_mlx ? "quantization" : "quantization_config")->items()) {
    if (module == "bits" || module == "group_size" || module == "mode") continue;
    if (value.is_boolean()) {
      quantization.override_module(module, value.get<bool>() ? std::optional(defaults) : std::nullopt);
    } else if (value.is_object()) {
      MF_TRY(
          const AffineParameters parameters,
          affine_parameters(ObjectReader(value, fmt::format("{}: {}", reader.where(), printable(module)))));
      quantization.override_module(module, parameters);
    } else {
      return reader.wrong(module, "an object, true or false");
    }
  }
  return quantization;
}

}  // namespace moeflux
