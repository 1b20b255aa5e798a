#include "cli/doctor_page.h"

#include <fmt/format.h>

#include "base/json.h"
#include "base/printable.h"
#include "base/sizes.h"

namespace moeflux::cli {
namespace {

// "7,077,888 B (7.08 MB)"; what is 0 is unknown.
std::string exact(std::uint64_t bytes) {
  if (bytes == 0) return "unknown";
  return fmt::format("{} B ({})", with_thousands(bytes), human_bytes(bytes));
}

std::string describe_cores(const Machine& machine) {
  return fmt::format("{} physical, {} logical", machine.physical_cores, machine.logical_cores);
}

std::string describe_limit(const Machine& machine) {
  if (!machine.cgroup_limit_bytes) return "none";
  return fmt::format("{}, {} used", exact(*machine.cgroup_limit_bytes),
                     human_bytes(machine.cgroup_used_bytes.value_or(0)));
}

std::string describe_probe(const HugePageProbe& probe) {
  if (probe.asked_bytes == 0) return "no memory to try it with";
  return fmt::format("{} granted of {} asked for", human_bytes(probe.granted_bytes),
                     human_bytes(probe.asked_bytes));
}

}  // namespace

std::string render_page(const Diagnosis& diagnosis) {
  const Machine& machine = diagnosis.machine;
  std::string page;
  const auto line = [&](std::string_view label, std::string_view name, std::string_view value) {
    page += fmt::format("{:<12}{:<14}{}\n", label, name, printable(value));
  };
  const auto whole_line = [&](std::string_view label, std::string_view value) {
    page += fmt::format("{:<12}{}\n", label, printable(value, 80));
  };
  whole_line("processor", machine.processor);
  whole_line("cores", describe_cores(machine));
  std::string_view label = "kernels";
  for (const KernelsFound& kernels : diagnosis.kernels) {
    line(label, kernels.name,
         kernels.is_chosen   ? "runs here, chosen"
         : kernels.runs_here ? "runs here"
                             : "not on this processor");
    label = "";
  }
  line("memory", "total", exact(machine.memory_total_bytes));
  line("", "available", exact(machine.memory_available_bytes));
  line("", "cgroup limit", describe_limit(machine));
  line("", "usable", exact(machine.usable_memory_bytes()));
  line("huge pages", "mode", machine.transparent_huge_pages);
  line("", "page", exact(machine.huge_page_bytes));
  line("", "tried", describe_probe(diagnosis.huge_pages));
  return page;
}

std::string render_json(const Diagnosis& diagnosis) {
  const Machine& machine = diagnosis.machine;
  Json json{{"processor", machine.processor},
            {"physical_cores", machine.physical_cores},
            {"logical_cores", machine.logical_cores}};
  json["kernels"] = Json::array();
  for (const KernelsFound& kernels : diagnosis.kernels)
    json["kernels"].push_back(
        {{"name", kernels.name}, {"runs_here", kernels.runs_here}, {"chosen", kernels.is_chosen}});
  const auto or_null = [](const auto& value) { return value ? Json(*value) : Json(nullptr); };
  json["memory"] = {{"total_bytes", machine.memory_total_bytes},
                    {"available_bytes", machine.memory_available_bytes},
                    {"cgroup_limit_bytes", or_null(machine.cgroup_limit_bytes)},
                    {"cgroup_used_bytes", or_null(machine.cgroup_used_bytes)},
                    {"usable_bytes", machine.usable_memory_bytes()}};
  json["huge_pages"] = {{"mode", machine.transparent_huge_pages},
                        {"page_bytes", machine.huge_page_bytes},
                        {"tried_bytes", diagnosis.huge_pages.asked_bytes},
                        {"granted_bytes", diagnosis.huge_pages.granted_bytes}};
  return json.dump(2, ' ', false, Json::error_handler_t::replace) + "\n";
}

}  // namespace moeflux::cli
