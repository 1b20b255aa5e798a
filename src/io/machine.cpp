#include "io/machine.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <limits>
#include <set>
#include <string_view>
#include <thread>
#include <vector>

#include "base/sizes.h"

namespace moeflux {
namespace {

constexpr std::size_t kMaxFileBytes = 64 * kKiB;  // all values are near the start of their files
constexpr std::uint64_t kMaxCores = 1u << 16;
constexpr int kMaxCaches = 16;
constexpr std::uint64_t kMaxCacheKib = std::uint64_t{1} << 30;
constexpr std::uint64_t kNoLimitBytes = std::uint64_t{1}
                                        << 60;  // cgroup v1 reports "no limit" as a huge number

std::string_view trimmed(std::string_view text) {
  constexpr std::string_view kBlank = " \t\n";
  const std::size_t first = text.find_first_not_of(kBlank);
  if (first == std::string_view::npos) return {};
  return text.substr(first, text.find_last_not_of(kBlank) - first + 1);
}

// The number that `text` begins with.
std::optional<std::uint64_t> leading_number(std::string_view text) {
  text = trimmed(text);
  std::uint64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc()) return std::nullopt;
  return value;
}

// Removes the text up to and including the next `separator` from `rest`, and returns it without the
// separator.
std::string_view next_part(std::string_view& rest, char separator) {
  const std::size_t end = std::min(rest.find(separator), rest.size());
  const std::string_view part = rest.substr(0, end);
  rest.remove_prefix(std::min(end + 1, rest.size()));
  return part;
}

// The value of the first line of `text` that is "key: value" or "key value".
std::optional<std::string_view> find_field(std::string_view text, std::string_view key) {
  while (!text.empty()) {
    std::string_view line = next_part(text, '\n');
    if (!line.starts_with(key)) continue;
    line.remove_prefix(key.size());
    if (line.find_first_of(": \t") != 0) continue;  // a longer key
    line = trimmed(line);
    if (line.starts_with(':')) line.remove_prefix(1);
    return trimmed(line);
  }
  return std::nullopt;
}

class SystemFiles {
 public:
  SystemFiles(FileSystem& files, const std::filesystem::path& root) : files_(files), root_(root) {}

  // The start of a file, or nullopt. Reads to the end, because sizes mean nothing here: files of /proc report
  // 0 and files of /sys one page.
  std::optional<std::string> read(const std::filesystem::path& path) const {
    const auto file = files_.open_read(root_ / path);
    if (!file) return std::nullopt;
    std::string text(kMaxFileBytes, '\0');
    std::size_t size = 0;
    while (size < text.size()) {
      const auto count = (*file)->read_some(size, std::as_writable_bytes(std::span(text).subspan(size)));
      if (!count) return std::nullopt;
      if (*count == 0) break;
      size += *count;
    }
    text.resize(size);
    return text;
  }

  std::string read_or_empty(const std::filesystem::path& path) const {
    return read(path).value_or(std::string());
  }

  std::optional<std::uint64_t> read_number(const std::filesystem::path& path) const {
    return leading_number(read_or_empty(path));
  }

 private:
  FileSystem& files_;
  const std::filesystem::path& root_;
};

// The numbers of "0-3,8,10-11"; empty if the text is not such a list.
std::vector<std::uint64_t> parse_core_list(std::string_view list) {
  std::vector<std::uint64_t> cores;
  list = trimmed(list);
  while (!list.empty()) {
    std::string_view last = next_part(list, ',');
    const auto begin = leading_number(next_part(last, '-'));
    const auto end = last.empty() ? begin : leading_number(last);
    if (!begin || !end || *end >= kMaxCores) return {};
    for (std::uint64_t core = *begin; core <= *end; ++core) cores.push_back(core);
  }
  return cores;
}

// The logical cores that this process may run on; empty if unknown.
std::vector<std::uint64_t> allowed_cores(const SystemFiles& system) {
  const std::string status = system.read_or_empty("proc/self/status");
  if (const auto list = find_field(status, "Cpus_allowed_list")) return parse_core_list(*list);
  return parse_core_list(system.read_or_empty("sys/devices/system/cpu/online"));
}

// An identifier of the physical core of a logical core: equal for hyper-threads of one core only.
std::string physical_core_of(const SystemFiles& system, std::uint64_t core) {
  const std::filesystem::path topology = fmt::format("sys/devices/system/cpu/cpu{}/topology", core);
  if (const auto siblings = system.read(topology / "thread_siblings_list"))
    return fmt::format("siblings {}", trimmed(*siblings));
  const auto id = system.read(topology / "core_id"), package = system.read(topology / "physical_package_id");
  if (id && package) return fmt::format("core {} of {}", trimmed(*id), trimmed(*package));
  return fmt::format("logical {}", core);
}

void read_cores(const SystemFiles& system, Machine& machine) {
  const std::vector<std::uint64_t> cores = allowed_cores(system);
  std::set<std::string> physical;
  for (const std::uint64_t core : cores) physical.insert(physical_core_of(system, core));
  const unsigned fallback = std::max(1u, std::thread::hardware_concurrency());
  machine.logical_cores = cores.empty() ? fallback : static_cast<unsigned>(cores.size());
  machine.physical_cores = cores.empty() ? fallback : static_cast<unsigned>(physical.size());
}

// Sizes have the form "32768K".
void read_caches(const SystemFiles& system, Machine& machine) {
  for (int index = 0; index < kMaxCaches; ++index) {
    const auto kib = system.read_number(fmt::format("sys/devices/system/cpu/cpu0/cache/index{}/size", index));
    if (!kib || *kib > kMaxCacheKib) return;
    machine.cache_bytes = std::max(machine.cache_bytes, *kib * kKiB);
  }
}

std::uint64_t kib_field(std::string_view text, std::string_view key) {
  const auto field = find_field(text, key);
  return (field ? leading_number(*field).value_or(0) : 0) * kKiB;
}

// The files that report the memory of a control group, in one version of cgroups.
struct CgroupNames {
  std::filesystem::path mount;
  const char *limit, *used;
  std::vector<std::string_view> reclaimable;  // fields of memory.stat
};

// Stores the group in `directory` as the machine's if it has less free memory than the stored one.
void consider_cgroup(const SystemFiles& system, const std::filesystem::path& directory,
                     const CgroupNames& names, Machine& machine) {
  const auto limit = system.read_number(directory / names.limit);  // nullopt for "max"
  if (!limit || *limit >= kNoLimitBytes) return;
  std::uint64_t used = system.read_number(directory / names.used).value_or(0);
  const std::string statistics = system.read_or_empty(directory / "memory.stat");
  for (const std::string_view key : names.reclaimable) {
    const auto field = find_field(statistics, key);
    used -= std::min(used, field ? leading_number(*field).value_or(0) : 0);
  }
  const auto free_bytes_of = [](std::uint64_t limit_bytes, std::uint64_t used_bytes) {
    return limit_bytes - std::min(limit_bytes, used_bytes);
  };
  if (machine.cgroup_limit_bytes &&
      free_bytes_of(*machine.cgroup_limit_bytes, *machine.cgroup_used_bytes) <= free_bytes_of(*limit, used))
    return;
  machine.cgroup_limit_bytes = limit;
  machine.cgroup_used_bytes = used;
}

// Considers `group`, a path from /proc/self/cgroup, and all groups that contain it. Inside a container the
// path may be the host's and not exist; then the outermost directory is the container's own group.
void consider_cgroups(const SystemFiles& system, std::string_view group, const CgroupNames& names,
                      Machine& machine) {
  std::filesystem::path directory = names.mount;
  consider_cgroup(system, directory, names, machine);
  while (!group.empty()) {
    const std::string_view name = next_part(group, '/');
    if (name == "..") return;
    if (name.empty()) continue;
    directory /= name;
    consider_cgroup(system, directory, names, machine);
  }
}

// Lines have the form "number:controllers:group". Version 2 has the number 0 and no controllers.
void read_cgroups(const SystemFiles& system, Machine& machine) {
  const CgroupNames version1{"sys/fs/cgroup/memory",
                             "memory.limit_in_bytes",
                             "memory.usage_in_bytes",
                             {"total_inactive_file", "total_active_file"}};
  const CgroupNames version2{
      "sys/fs/cgroup", "memory.max", "memory.current", {"inactive_file", "active_file"}};
  const std::string groups = system.read_or_empty("proc/self/cgroup");
  std::string_view rest = groups;
  while (!rest.empty()) {
    std::string_view group = next_part(rest, '\n');
    next_part(group, ':');
    std::string_view controllers = next_part(group, ':');
    if (controllers.empty()) consider_cgroups(system, group, version2, machine);
    while (!controllers.empty())
      if (next_part(controllers, ',') == "memory") consider_cgroups(system, group, version1, machine);
  }
}

// "madvise" of "always [madvise] never".
std::string bracketed_choice(std::string_view choices) {
  const std::size_t open = choices.find('['), close = choices.find(']');
  if (open == std::string_view::npos || close == std::string_view::npos || close < open) return "unknown";
  return std::string(choices.substr(open + 1, close - open - 1));
}

}  // namespace

std::uint64_t Machine::usable_memory_bytes() const {
  std::uint64_t usable = memory_available_bytes;
  if (cgroup_limit_bytes) {
    const std::uint64_t used = std::min(*cgroup_limit_bytes, cgroup_used_bytes.value_or(0));
    const std::uint64_t free_bytes = *cgroup_limit_bytes - used;
    usable = usable == 0 ? free_bytes : std::min(usable, free_bytes);
  }
  return usable;
}

Machine read_machine(FileSystem& files) { return read_machine(files, "/"); }

Machine read_machine(FileSystem& files, const std::filesystem::path& root) {
  const SystemFiles system(files, root);
  Machine machine;
  const std::string processors = system.read_or_empty("proc/cpuinfo");
  if (const auto name = find_field(processors, "model name"); name && !name->empty())
    machine.processor = *name;
  read_cores(system, machine);
  read_caches(system, machine);
  const std::string memory = system.read_or_empty("proc/meminfo");
  machine.memory_total_bytes = kib_field(memory, "MemTotal");
  machine.memory_available_bytes = kib_field(memory, "MemAvailable");
  read_cgroups(system, machine);
  const std::filesystem::path huge_pages = "sys/kernel/mm/transparent_hugepage";
  machine.transparent_huge_pages = bracketed_choice(system.read_or_empty(huge_pages / "enabled"));
  machine.huge_page_bytes =
      system.read_number(huge_pages / "hpage_pmd_size").value_or(kib_field(memory, "Hugepagesize"));
  return machine;
}

}  // namespace moeflux
