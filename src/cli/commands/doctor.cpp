#include "cli/commands/doctor.h"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <memory>

#include "base/json/json.h"
#include "base/printable.h"
#include "base/sizes.h"
#include "cli/console.h"
#include "cli/labeled_line.h"

namespace moeflux::cli {
namespace {

// "7,077,888 B (7.08 MB)", or "unknown" for 0.
std::string known_bytes(std::uint64_t bytes) {
  if (bytes == 0) return "unknown";
  return fmt::format("{} B ({})", with_thousands(bytes), human_bytes(bytes));
}

std::string describe_cores(const Machine& machine) {
  return fmt::format("{} physical, {} logical", machine.physical_cores, machine.logical_cores);
}

std::string describe_limit(const Machine& machine) {
  if (!machine.cgroup_limit_bytes) return "none";
  return fmt::format("{}, {} used", known_bytes(*machine.cgroup_limit_bytes),
                     human_bytes(machine.cgroup_used_bytes.value_or(0)));
}

std::string describe_probe(const HugePageProbe& probe) {
  if (probe.asked_bytes == 0) return "no memory to try it with";
  return fmt::format("{} granted of {} asked for", human_bytes(probe.granted_bytes),
                     human_bytes(probe.asked_bytes));
}

std::string describe_direct_reads(const DriveDiagnosis& drive) {
  const std::optional<bool> works = drive.has_direct_reads();
  return !works ? "unknown" : *works ? "work here" : "refused";
}

std::string describe_uring(const DriveDiagnosis& drive) {
  if (const std::optional<bool> works = drive.has_uring()) return *works ? "works here" : "refused";
  return drive.has_direct_reads() == false ? "not tried: it is for direct reads" : "unknown";
}

std::string describe_locked_memory(const DriveDiagnosis& drive) {
  if (!drive.locked_memory_limit_bytes) return "no limit";
  const std::uint64_t limit = *drive.locked_memory_limit_bytes;
  const bool is_exempt = drive.has_fixed_buffers && drive.fixed_buffer_bytes > limit;
  return fmt::format("{} at most{}", limit == 0 ? "0 B" : known_bytes(limit),
                     is_exempt ? ", but this user is exempt" : "");
}

std::string describe_fixed_buffers(const DriveDiagnosis& drive) {
  if (drive.tried.empty()) return "unknown";
  if (drive.has_uring() != true) return "not tried: they are io_uring's";
  if (drive.fixed_buffer_bytes == 0) return "no memory to try it with";
  return fmt::format("{} {}", human_bytes(drive.fixed_buffer_bytes),
                     drive.has_fixed_buffers ? "registered" : "refused");
}

// The refusals of all drives tried, each once.
std::vector<std::string> refusals_of(const DriveDiagnosis& drive) {
  std::vector<std::string> refusals;
  for (const DriveTried& tried : drive.tried)
    for (const std::string& refusal : tried.refusals)
      if (std::ranges::find(refusals, refusal) == refusals.end()) refusals.push_back(refusal);
  return refusals;
}

Json drive_json(const DriveDiagnosis& drive) {
  const auto or_null = [](const auto& value) { return value ? Json(*value) : Json(nullptr); };
  Json tried = Json::array();
  for (const DriveTried& one : drive.tried)
    tried.push_back({{"asked", name_of(one.asked)},
                     {"found", one.found ? Json(name_of(*one.found)) : Json(nullptr)},
                     {"description", one.description},
                     {"refusals", one.refusals}});
  return {
      {"folder", drive.folder.native()},
      {"problem", drive.problem.empty() ? Json(nullptr) : Json(drive.problem)},
      {"direct_reads", or_null(drive.has_direct_reads())},
      {"io_uring", or_null(drive.has_uring())},
      {"locked_memory_limit_bytes", or_null(drive.locked_memory_limit_bytes)},
      {"fixed_buffers", {{"tried_bytes", drive.fixed_buffer_bytes}, {"registered", drive.has_fixed_buffers}}},
      {"chosen", tried.empty() ? Json(nullptr) : tried.front()["found"]},
      {"tried", tried}};
}

}  // namespace

std::string render_page(const Diagnosis& diagnosis) {
  const Machine& machine = diagnosis.machine;
  std::string page;
  const auto line = [&](std::string_view label, std::string_view name, std::string_view value) {
    page += labeled_line(fmt::format("{:<12}{:<14}", label, name), 26, value);
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
  line("memory", "total", known_bytes(machine.memory_total_bytes));
  line("", "available", known_bytes(machine.memory_available_bytes));
  line("", "cgroup limit", describe_limit(machine));
  line("", "usable", known_bytes(machine.usable_memory_bytes()));
  line("huge pages", "mode", machine.transparent_huge_pages);
  line("", "page", known_bytes(machine.huge_page_bytes));
  line("", "tried", describe_probe(diagnosis.huge_pages));
  const DriveDiagnosis& drive = diagnosis.drive;
  line("drive", "folder", drive.folder.native());
  if (!drive.problem.empty()) line("", "tried", "nothing: " + drive.problem);
  line("", "direct reads", describe_direct_reads(drive));
  line("", "io_uring", describe_uring(drive));
  line("", "locked memory", describe_locked_memory(drive));
  line("", "fixed buffers", describe_fixed_buffers(drive));
  if (!drive.tried.empty() && drive.tried.front().found) line("", "chosen", drive.tried.front().description);
  for (const std::string& refusal : refusals_of(drive)) line("", "note", refusal);
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
  json["drive"] = drive_json(diagnosis.drive);
  return json.dump(2, ' ', false, Json::error_handler_t::replace) + "\n";
}

Command add_doctor(CLI::App& program) {
  CLI::App* const parser =
      program.add_subcommand("doctor", "Describe this machine and what moeflux can use of it");
  const auto as_json = std::make_shared<bool>(false);
  parser->add_flag("--json", *as_json, "Print the same numbers as JSON");
  return {parser, [as_json](const Shell& shell) {
            const Diagnosis diagnosis = diagnose(shell.files, folder_of_models(shell.files, shell.places));
            return finish(write_output(*as_json ? render_json(diagnosis) : render_page(diagnosis)));
          }};
}

}  // namespace moeflux::cli
