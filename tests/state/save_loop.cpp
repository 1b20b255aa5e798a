// save_loop MODEL FILE: saves two states of a session to FILE, alternately, until it is killed.
// save_loop --check MODEL FILE: prints which of the two FILE holds, "first" or "second".
//
// MODEL is a packed model. The states, which have a checkpoint, depend only on it, so every run has the same
// two. save_kill_test.py
// kills the first form and then runs the second. The exit status is 0, 1 after a message on standard error,
// or 2 for wrong arguments.

#include <fmt/format.h>

#include <array>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <utility>
#include <vector>

#include "engine/session.h"
#include "io/posix_file_system.h"

namespace moeflux {
namespace {

using Bytes = std::vector<std::byte>;

// One below and one above the size of a block.
constexpr std::array<std::uint32_t, 2> kPositions = {40, 300};

Result<Session> state_of(Engine& engine, std::uint32_t positions) {
  MF_TRY(Session session, engine.new_session());
  std::vector<TokenId> tokens;
  for (std::uint32_t i = 0; i < positions; ++i)
    tokens.emplace_back((i * i + 7 * i + positions) % engine.config().vocabulary);
  MF_TRY_STATUS(session.extend(std::span(tokens).first(positions / 2)));
  session.checkpoint();
  MF_TRY_STATUS(session.extend(std::span(tokens).subspan(positions / 2)));
  return session;
}

Result<Bytes> bytes_of(const Session& session) {
  Bytes all;
  MF_TRY_STATUS(session.save([&](std::span<const std::byte> bytes) -> Status {
    all.insert(all.end(), bytes.begin(), bytes.end());
    return {};
  }));
  return all;
}

Status save_without_end(Engine& engine, FileSystem& files, const std::filesystem::path& path) {
  MF_TRY(const Session first, state_of(engine, kPositions[0]));
  MF_TRY(const Session second, state_of(engine, kPositions[1]));
  while (true) {
    MF_TRY_STATUS(first.save(files, path));
    MF_TRY_STATUS(second.save(files, path));
  }
}

// Loads the file, saves it again, and compares every byte.
Status check(Engine& engine, FileSystem& files, const std::filesystem::path& path) {
  MF_TRY(Session loaded, engine.new_session());
  MF_TRY_STATUS(loaded.load(files, path));
  MF_TRY(const Bytes found, bytes_of(loaded));
  for (std::size_t i = 0; i < kPositions.size(); ++i) {
    if (loaded.position() != kPositions[i]) continue;
    MF_TRY(const Session expected, state_of(engine, kPositions[i]));
    MF_TRY(const Bytes bytes, bytes_of(expected));
    if (found != bytes) break;
    fmt::print("{}\n", i == 0 ? "first" : "second");
    return {};
  }
  return Error(ErrorCode::corrupt_data, fmt::format("'{}' is neither of the two states", path.native()));
}

Status run(bool is_check, const char* model, const char* path) {
  PosixFileSystem files;
  EngineOptions options;
  options.threads = 1;
  options.context = 512;
  MF_TRY(PackedModel packed, PackedModel::open(files, model));
  MF_TRY(const std::shared_ptr<Engine> engine, Engine::open(files, std::move(packed), options));
  return is_check ? check(*engine, files, path) : save_without_end(*engine, files, path);
}

}  // namespace
}  // namespace moeflux

int main(int argc, char** argv) {
  const bool is_check = argc > 1 && std::strcmp(argv[1], "--check") == 0;
  if (argc != (is_check ? 4 : 3)) {
    fmt::print(stderr, "usage: save_loop [--check] MODEL FILE\n");
    return 2;
  }
  const moeflux::Status done = moeflux::run(is_check, argv[argc - 2], argv[argc - 1]);
  if (done) return 0;
  fmt::print(stderr, "save_loop: {}\n", done.error().message());
  return 1;
}
