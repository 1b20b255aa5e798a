// Input: u8 selector, then a snapshot file of version 1 to 4.
//
//   1  the model has latent attention, otherwise linear and full attention
//   2  the file and its length field are extended to the length that version 3 or 4 requires for its position
//      and its checkpoints
//   4  the last 8 bytes are replaced by the checksum of the others
//   8  only one checkpoint with recurrent states of its own is read
//
// A fuzzer cannot guess a checksum, or a length that follows from two numbers of the header. Without 2 and 4
// the bytes are read unchanged.

#include <algorithm>
#include <cstring>

#include "fuzz/promises.h"
#include "io/memory_file.h"
#include "state/testing/snapshot_files.h"

namespace moeflux::fuzz {
namespace {

constexpr std::uint32_t kContext = 1000;
constexpr std::uint64_t kMaxBytes = 64 << 10;  // that a file is extended to

// Minimal sizes, so that the input is mostly header; keys still have heads, and latents two parts.
ModelConfig qwen_config() {
  ModelConfig config = small_qwen_config();
  config.layers.erase(config.layers.begin() + 2, config.layers.end());
  std::get<GatedAttentionConfig>(config.layers[1].mixer).head_dim = 1;
  return config;
}
ModelConfig deepseek_config() {
  ModelConfig config = small_deepseek_config();
  for (LayerConfig& layer : config.layers) {
    auto& mla = std::get<MlaConfig>(layer.mixer);
    mla.latent_dim = mla.rope_dim = 1;
  }
  return config;
}

struct Model {
  explicit Model(ModelConfig of) : config(std::move(of)), shape(state_shape_of(config)) {}
  ModelConfig config;
  StateShape shape;
  BlockPool pool{BlockPool::kNoBudget};  // every input reuses its memory
};

template <class T>
T word_at(const Bytes& bytes, std::size_t offset) {
  T value;
  std::memcpy(&value, bytes.data() + offset, sizeof value);
  return value;
}

// The positions of the checkpoints that a file of version 4 has, as far as it has them.
std::vector<std::uint32_t> checkpoints_in(const Bytes& bytes) {
  std::vector<std::uint32_t> checkpoints;
  if (word_at<std::uint32_t>(bytes, 4) != 4) return checkpoints;
  const auto count = std::min<std::size_t>(word_at<std::uint32_t>(bytes, 60), kMostSavedCheckpoints);
  for (std::size_t at = 64; checkpoints.size() < count && at + 4 <= bytes.size(); at += 4)
    checkpoints.push_back(word_at<std::uint32_t>(bytes, at));
  return checkpoints;
}

void fix_length(const Model& model, Bytes& bytes) {
  if (bytes.size() < 64) return;
  const auto position = word_at<std::uint32_t>(bytes, 52), tokens_begin = word_at<std::uint32_t>(bytes, 56);
  if (position > kContext || tokens_begin > position) return;
  const std::uint64_t size =
      snapshot_bytes(model.shape, position, position - tokens_begin, checkpoints_in(bytes));
  if (size > kMaxBytes) return;
  bytes.resize(size);
  put_at(bytes, 8, size);
}

void require_refusal_of_snapshot(const Error& error) {
  require_fit_for_people(error.message());
  constexpr ErrorCode kCodes[] = {
      ErrorCode::buffer_too_small, ErrorCode::bad_magic,         ErrorCode::bad_version,
      ErrorCode::shape_mismatch,   ErrorCode::negative_length,   ErrorCode::length_overflow,
      ErrorCode::unequal_lengths,  ErrorCode::truncated,         ErrorCode::trailing_bytes,
      ErrorCode::wrong_model,      ErrorCode::wrong_numerics,    ErrorCode::bad_checksum,
      ErrorCode::tokens_unknown,   ErrorCode::token_out_of_range};
  MF_REQUIRE(std::ranges::find(kCodes, error.code()) != std::end(kCodes),
             "a snapshot is refused with a code of its table");
}

void require_checkpoints(const Model& model, const SavedSession& session) {
  const std::uint32_t position = session.snapshot.position();
  std::uint64_t blocks = 1;
  for (const Snapshot& checkpoint : session.checkpoints) {
    MF_REQUIRE(checkpoint.position() >= session.snapshot.tokens_begin() && checkpoint.position() <= position,
               "a checkpoint is where tokens are known");
    MF_REQUIRE(is_on_timeline(model.shape, checkpoint, session.snapshot),
               "a checkpoint is on the timeline of its session");
    blocks += checkpoint.position() != 0 && checkpoint.position() != position;
  }
  MF_REQUIRE(model.pool.used_bytes() ==
                 model.shape.kv_bytes(position) + blocks * model.shape.recurrent_block_bytes(),
             "a session has the blocks that its position and its checkpoints need");
}

void require_coherent(const Model& model, const SavedSession& session, std::uint32_t version) {
  const Snapshot& snapshot = session.snapshot;
  const std::uint32_t position = snapshot.position();
  MF_REQUIRE(position <= kContext, "a snapshot fits the context");
  MF_REQUIRE(snapshot.tokens_begin() + snapshot.tokens().size() == position,
             "tokens are known up to the position");
  MF_REQUIRE(version >= 3 || snapshot.tokens().empty(), "the original keeps no tokens");
  MF_REQUIRE(version == 4 || session.checkpoints.empty(), "only version 4 has checkpoints");
  for (const TokenId token : snapshot.tokens())
    MF_REQUIRE(token.index() < model.config.vocabulary, "a token is in the vocabulary");
  require_checkpoints(model, session);
  for (const std::vector<KvBlock>& blocks : snapshot.contents().blocks) {
    std::uint64_t filled = 0;
    for (const KvBlock& block : blocks) {
      MF_REQUIRE(filled % kKvBlockPositions == 0, "every block but the last is full");
      filled += block.memory.filled();
    }
    MF_REQUIRE(blocks.empty() || filled == position, "rows are claimed up to the position");
  }
}

Bytes written(const Model& model, const SavedSession& session) {
  Bytes bytes;
  const Status status = write_snapshot(model.shape, identity_of_tests(), session,
                                       [&](std::span<const std::byte> piece) -> Status {
                                         bytes.insert(bytes.end(), piece.begin(), piece.end());
                                         return {};
                                       });
  MF_REQUIRE(status.has_value(), "a snapshot can be written");
  MF_REQUIRE(bytes.size() == snapshot_bytes(model.shape, session), "the size of a file is known before");
  return bytes;
}

// The file of version 4 with the contents of a file of version 3 or 4.
Bytes as_version_4(Bytes file) {
  put_at(file, 4, 4u);
  fix_checksum(file);
  return file;
}

void require_same(const Model& model, const Snapshot& a, const Snapshot& b) {
  MF_REQUIRE(a.position() == b.position() && a.tokens_begin() == b.tokens_begin() &&
                 std::ranges::equal(a.tokens(), b.tokens()) &&
                 bits_of(model.shape, a) == bits_of(model.shape, b),
             "what was read back is what was written");
}

// The tokens of a file that can be read are those of its snapshot; a file of another arithmetic has tokens or
// is refused.
void read_tokens(const Model& model, const Bytes& file, const Result<SavedSession>& session) {
  const Result<SnapshotTokens> tokens =
      read_snapshot_tokens(MemoryFile(file), model.config, identity_of_tests().fingerprint, kContext);
  if (!tokens) {
    require_refusal_of_snapshot(tokens.error());
    MF_REQUIRE(!session || tokens.error().code() == ErrorCode::tokens_unknown,
               "a session that can be read has all its tokens or does not know some");
    return;
  }
  MF_REQUIRE(session || session.error().code() == ErrorCode::wrong_numerics ||
                 session.error().code() == ErrorCode::truncated ||
                 session.error().code() == ErrorCode::trailing_bytes,
             "only the arithmetic and the size of the layers do not matter");
  MF_REQUIRE(tokens->tokens.size() <= kContext, "the tokens fit the context");
  for (const TokenId token : tokens->tokens)
    MF_REQUIRE(token.index() < model.config.vocabulary, "a token is in the vocabulary");
  for (const std::uint32_t checkpoint : tokens->checkpoints)
    MF_REQUIRE(checkpoint <= tokens->tokens.size(), "a checkpoint is where there are tokens");
  MF_REQUIRE(!session || std::ranges::equal(tokens->tokens, session->snapshot.tokens()),
             "the tokens are those of the session");
}

void read_file(Model& model, const Bytes& file, std::size_t most_checkpoints) {
  const auto read = [&](const Bytes& bytes) {
    return read_snapshot(bytes,
                         {model.config, identity_of_tests(), model.pool, kContext, {}, most_checkpoints});
  };
  const Result<SavedSession> session = read(file);
  read_tokens(model, file, session);
  if (!session) return require_refusal_of_snapshot(session.error());
  const auto version = word_at<std::uint32_t>(file, 4);
  require_coherent(model, *session, version);

  const Bytes bytes = written(model, *session);
  const bool is_whole = version >= 3 && session->checkpoints.size() == checkpoints_in(file).size();
  MF_REQUIRE(!is_whole || bytes == as_version_4(file), "what is read is written as it was");
  const Result<SavedSession> again = read(bytes);
  MF_REQUIRE(again.has_value(), "what was written can be read");
  require_same(model, again->snapshot, session->snapshot);
  MF_REQUIRE(again->checkpoints.size() == session->checkpoints.size(), "checkpoints are written and read");
  for (std::size_t i = 0; i < again->checkpoints.size(); ++i)
    require_same(model, again->checkpoints[i], session->checkpoints[i]);
}

void read(std::span<const std::byte> input) {
  static Model qwen(qwen_config()), deepseek(deepseek_config());
  if (input.empty()) return;
  const auto selector = std::to_integer<unsigned>(input[0]);
  Model& model = (selector & 1) != 0 ? deepseek : qwen;
  Bytes file(input.begin() + 1, input.end());
  if ((selector & 2) != 0) fix_length(model, file);
  if ((selector & 4) != 0) fix_checksum(file);
  read_file(model, file, (selector & 8) != 0 ? 1 : kMostSavedCheckpoints);
  MF_REQUIRE(model.pool.used_bytes() == 0, "no block is left in use");
}

}  // namespace
}  // namespace moeflux::fuzz

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  moeflux::fuzz::read(std::as_bytes(std::span(data, size)));
  return 0;
}
