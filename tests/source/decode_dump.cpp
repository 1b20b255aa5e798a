// decode_dump PATH: every matrix of a model, decoded, on standard output.
//
// For each matrix one line of JSON, {"name":...,"rows":...,"cols":...}, then rows * cols float32 numbers,
// little-endian, row by row: the resident ones under their names, then the routed experts layer by layer.
// decode_test.py compares them with a reader that shares no code with this one. Exits with 0, with 1 after a
// message on standard error, or with 2 when called in another way.

#include <fmt/format.h>

#include <bit>
#include <cstdio>

#include "base/json/json.h"
#include "io/posix_file_system.h"
#include "source/matrix_reader.h"
#include "source/source_model.h"

namespace moeflux {
namespace {

static_assert(std::endian::native == std::endian::little, "numbers are written as they are in memory");

Status put(std::span<const char> bytes) {
  if (std::fwrite(bytes.data(), 1, bytes.size(), stdout) == bytes.size()) return {};
  return Error{ErrorCode::io_failed, "cannot write to standard output"};
}

Status dump(const SourceModel& model, const std::string& name, const SourceMatrix& matrix) {
  MF_TRY_STATUS(put(Json{{"name", name}, {"rows", matrix.rows}, {"cols", matrix.cols}}.dump() + "\n"));
  return decode_rows(model.catalog(), matrix, name,
                     [](std::uint64_t, std::span<const float> numbers) -> Status {
                       return put({reinterpret_cast<const char*>(numbers.data()), numbers.size_bytes()});
                     });
}

Status dump_all(const char* path) {
  PosixFileSystem files;
  MF_TRY(const SourceModel model, SourceModel::open(files, path));
  for (const NamedMatrix& named : model.resident()) MF_TRY_STATUS(dump(model, named.name, named.matrix));
  for (std::uint32_t i = 0; i < model.config().layers.size(); ++i) {
    const SourceExperts* experts = model.experts(LayerId(i));
    if (experts == nullptr) continue;
    for (std::uint32_t e = 0; e < experts->count(); ++e) {
      const ExpertKey key{LayerId(i), ExpertId(e)};
      const ExpertMatrices expert = experts->expert(key.expert);
      MF_TRY_STATUS(dump(model, expert_matrix_name(key, "gate_proj"), expert.gate));
      MF_TRY_STATUS(dump(model, expert_matrix_name(key, "up_proj"), expert.up));
      MF_TRY_STATUS(dump(model, expert_matrix_name(key, "down_proj"), expert.down));
    }
  }
  if (std::fflush(stdout) != 0) return Error{ErrorCode::io_failed, "cannot write to standard output"};
  return {};
}

}  // namespace
}  // namespace moeflux

int main(int argc, char** argv) {
  if (argc != 2) {
    fmt::print(stderr, "usage: decode_dump PATH\n");
    return 2;
  }
  const moeflux::Status status = moeflux::dump_all(argv[1]);
  if (!status) fmt::print(stderr, "decode_dump: {}\n", status.error().message());
  return status ? 0 : 1;
}
