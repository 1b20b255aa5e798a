#include "cli/saved_how.h"

#include <fmt/format.h>

#include <string_view>

#include "engine/options/option_text.h"
#include "ops/ops.h"
#include "quant/kv_dtype.h"

namespace moeflux::cli {
namespace {

std::string name_of_precision(std::uint32_t number) {
  if (number > 1) return fmt::format("{}", number);
  return std::string(name_of(number == 0 ? Precision::exact : Precision::fast));
}

std::string name_of_dtype(std::uint32_t number) {
  if (number > static_cast<std::uint32_t>(KvDtype::int8)) return fmt::format("{}", number);
  return std::string(name_of(static_cast<KvDtype>(number)));
}

}  // namespace

std::string saved_how(const SnapshotIdentity& saved, const SnapshotIdentity& here) {
  std::string text = "saved";
  if (saved.law != here.law)
    text += fmt::format(" by {} version (law {})", saved.law < here.law ? "an older" : "a newer", saved.law);
  std::string_view separator = " with ";
  const auto add = [&](std::string_view flag, const std::string& value) {
    text += fmt::format("{}{} {}", separator, flag, value);
    separator = ", ";
  };
  if (saved.precision != here.precision) add("--precision", name_of_precision(saved.precision));
  if (saved.experts_per_token != here.experts_per_token)
    add("--top-experts", fmt::format("{}", saved.experts_per_token));
  if (saved.kv_dtype != here.kv_dtype) add("--kv", name_of_dtype(saved.kv_dtype));
  return text;
}

}  // namespace moeflux::cli
