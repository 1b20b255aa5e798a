#include "engine/options/option_text.h"

#include <fmt/format.h>

#include "base/printable.h"
#include "base/sizes.h"
#include "kernels/kernel_table.h"

namespace moeflux {
namespace {

Error unexpected(std::string_view expected, std::string_view found) {
  return {ErrorCode::invalid_argument, fmt::format("expected {}, found '{}'", expected, printable(found))};
}

}  // namespace

Status set_precision(EngineOptions& options, std::string_view text) {
  for (const Precision precision : {Precision::exact, Precision::fast})
    if (text == name_of(precision)) {
      options.precision = precision;
      return {};
    }
  return unexpected("exact or fast", text);
}

Status set_kv_dtype(EngineOptions& options, std::string_view text) {
  for (const KvDtype dtype : {KvDtype::f32, KvDtype::bf16, KvDtype::int8})
    if (text == name_of(dtype)) {
      options.kv_dtype = dtype;
      return {};
    }
  return unexpected("f32, bf16 or int8", text);
}

Status set_isa(EngineOptions& options, std::string_view text) {
  MF_TRY_STATUS(select_kernels(text));
  options.isa = text;
  return {};
}

Status set_drive(EngineOptions& options, std::string_view text) {
  MF_TRY(options.drive, parse_drive_choice(text));
  return {};
}

Status set_expert_cache(EngineOptions& options, std::string_view text) {
  MF_TRY(const std::uint64_t bytes, parse_size(text));
  if (bytes == 0) return unexpected("a size with room for at least one expert", text);
  options.expert_cache_bytes = bytes;
  return {};
}

Status set_prefetch(EngineOptions& options, std::string_view text) {
  if (text != "previous" && text != "off") return unexpected("previous or off", text);
  options.prefetches = text == "previous";
  return {};
}

}  // namespace moeflux
