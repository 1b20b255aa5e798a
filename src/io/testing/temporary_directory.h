#pragma once
// A new directory for a test, removed with its contents when the object is destroyed. Test code only.
//
// It is in $TMPDIR or /tmp. Its files are written and read with the standard library, not with the code under
// test. One thread at a time.

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>

#include "base/check.h"

namespace moeflux {

class TemporaryDirectory {
 public:
  TemporaryDirectory() {
    std::string pattern = (std::filesystem::temp_directory_path() / "moeflux-XXXXXX").native();
    MF_REQUIRE(::mkdtemp(pattern.data()) != nullptr, "TMPDIR is writable");
    path_ = std::move(pattern);
  }
  ~TemporaryDirectory() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  TemporaryDirectory(const TemporaryDirectory&) = delete;
  TemporaryDirectory& operator=(const TemporaryDirectory&) = delete;

  const std::filesystem::path& path() const { return path_; }
  std::filesystem::path operator/(std::string_view name) const { return path_ / name; }

  // Writes a file, creating its parent directories, and returns its path.
  std::filesystem::path write(std::string_view name, std::string_view content) const {
    const std::filesystem::path file = path_ / name;
    std::filesystem::create_directories(file.parent_path());
    std::ofstream out(file, std::ios::binary | std::ios::trunc);
    out.write(content.data(), static_cast<std::streamsize>(content.size()));
    out.close();
    MF_REQUIRE(out.good(), "TMPDIR is writable and not full");
    return file;
  }

  // The contents of a file, or an empty string if it does not exist.
  std::string read(std::string_view name) const {
    std::ifstream in(path_ / name, std::ios::binary);
    return {std::istreambuf_iterator<char>(in), {}};
  }

 private:
  std::filesystem::path path_;
};

}  // namespace moeflux
