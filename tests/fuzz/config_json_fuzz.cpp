// Input: a config.json.

#include "base/json/json.h"
#include "fuzz/promises.h"
#include "quant/encoding.h"
#include "source/model_config.h"
#include "source/quantization.h"

namespace moeflux::fuzz {
namespace {

void read_quantization(const ObjectReader& config) {
  Notes notes;
  const Result<Quantization> quantization = parse_quantization(config, notes);
  require_notes(notes);
  if (!quantization) {
    require_refusal(quantization.error());
    return;
  }
  if (quantization->method() != Quantization::Method::affine) return;
  const auto defaults = quantization->of_module("no such module");
  MF_REQUIRE(defaults && is_affine_bits(defaults->bits) && is_affine_group(defaults->group),
             "bits and group are among those that can be decoded");
}

void read_config(const ObjectReader& config) {
  Notes notes;
  const Result<ModelConfig> model = parse_model_config(config, notes);
  require_notes(notes);
  if (model)
    require_runnable(*model);
  else
    require_refusal(model.error());
}

void read(std::string_view text) {
  const Result<Json> document = parse_json(text, "config.json");
  if (!document) return require_refusal(document.error());
  const Result<ObjectReader> config = ObjectReader::as_object(*document, "config.json");
  if (!config) return require_refusal(config.error());
  read_quantization(*config);
  read_config(*config);
}

}  // namespace
}  // namespace moeflux::fuzz

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  moeflux::fuzz::read(moeflux::fuzz::text_of(data, size));
  return 0;
}
