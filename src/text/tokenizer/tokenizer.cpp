#include "text/tokenizer/tokenizer.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <utility>

#include "base/check.h"
#include "base/json/object_reader.h"
#include "base/printable.h"
#include "base/sizes.h"
#include "base/thread_annotations.h"
#include "text/tokenizer/added_tokens.h"
#include "text/tokenizer/bpe.h"
#include "text/tokenizer/byte_alphabet.h"
#include "text/tokenizer/normalizer.h"
#include "text/tokenizer/pre_tokenizer.h"
#include "text/tokenizer/tokenizer_json.h"
#include "text/tokenizer/tokenizer_sections.h"
#include "text/unicode/utf8.h"

namespace moeflux {
namespace {

constexpr std::size_t kMostIdleScratches = 8;

// The working memory of a call.
struct Scratch {
  PreTokenizer::Scratch pre_tokenizer;
  Bpe::Scratch bpe;
  std::string valid, normalized;
  std::vector<TextRange> data, inner_data;
  std::vector<TextPart> parts, inner_parts;
};

// Scratches that wait for the next call. Thread-safe.
class ScratchPool {
 public:
  std::unique_ptr<Scratch> take() {
    {
      const Lock lock(mutex_);
      if (!idle_.empty()) {
        std::unique_ptr<Scratch> scratch = std::move(idle_.back());
        idle_.pop_back();
        return scratch;
      }
    }
    return std::make_unique<Scratch>();
  }
  void give_back(std::unique_ptr<Scratch> scratch) {
    const Lock lock(mutex_);
    if (idle_.size() < kMostIdleScratches) idle_.push_back(std::move(scratch));
  }

 private:
  Mutex mutex_;
  std::vector<std::unique_ptr<Scratch>> idle_ MF_GUARDED_BY(mutex_);
};

Error corrupt(std::string_view name, std::string_view why) {
  return {ErrorCode::corrupt_data, fmt::format("{}: {}", name, why)};
}

// `text` with U+FFFD in place of invalid bytes. Adjusts the ranges, which then cover whole characters.
void make_valid(std::string_view text, std::string& valid, std::vector<TextRange>& ranges) {
  std::vector<TextRange> moved(ranges.size(), TextRange{0, 0});
  std::size_t begins = 0, ends = 0;  // how many are adjusted
  valid.clear();
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t begin = valid.size();
    const Utf8Step step = utf8_step(text.substr(at));
    if (step.kind == Utf8Step::Kind::character) {
      valid += text.substr(at, step.bytes);
    } else {
      valid += kReplacementCharacter;
    }
    at += step.bytes;
    while (begins < ranges.size() && ranges[begins].begin < at) moved[begins++].begin = begin;
    while (ends < begins && ranges[ends].end <= at) {
      const bool is_empty = ranges[ends].begin == ranges[ends].end;
      moved[ends].end = is_empty ? moved[ends].begin : valid.size();
      ++ends;
    }
  }
  for (; begins < ranges.size(); ++begins) moved[begins].begin = valid.size();
  for (; ends < ranges.size(); ++ends) moved[ends].end = valid.size();
  ranges.swap(moved);
}

// The parts of `data` inside `range`, relative to its beginning.
void cut_ranges(std::span<const TextRange> data, TextRange range, std::vector<TextRange>& out) {
  out.clear();
  for (const TextRange& one : data) {
    const std::size_t begin = std::max(one.begin, range.begin), end = std::min(one.end, range.end);
    if (begin < end) out.push_back({begin - range.begin, end - range.begin});
  }
}

}  // namespace

struct Tokenizer::Parts {
  StringTable vocabulary;
  std::vector<TokenId> vocabulary_ids;
  std::vector<AddedToken> added;
  Normalizer normalizer;
  PreTokenizer pre_tokenizer;
  Surroundings surroundings;
  AddedTokenSet plain, normalized;  // added tokens without and with the flag "normalized"
  std::optional<Bpe> bpe;
  std::optional<TokenBytes> bytes;
  std::vector<const AddedToken*> added_by_id;  // nullptr: not an added token
  ScratchPool pool;

  explicit Parts(TokenizerFile& file)
      : vocabulary(std::move(file.vocabulary)), vocabulary_ids(std::move(file.vocabulary_ids)) {}

  // Steps of construction.
  Status build_bpe(const TokenizerFile& file, std::string_view name);
  Status build_bytes(std::string_view name);
  Status build_added(std::string_view name);

  // Steps of encoding.
  Status encode(std::string_view text, AddedTokens which, std::span<const TextRange> data,
                std::vector<TokenId>& out);
  Status encode_valid(std::string_view text, AddedTokens which, Scratch& scratch,
                      std::vector<TokenId>& out) const;
  Status encode_between(std::string_view text, TextRange range, AddedTokens which, Scratch& scratch,
                        std::vector<TokenId>& out) const;
  Status encode_pieces(std::string_view text, Scratch& scratch, std::vector<TokenId>& out) const;
};

Status Tokenizer::Parts::build_bpe(const TokenizerFile& file, std::string_view name) {
  const Json* model = &file.rest.find("model").value();  // present, because it holds the vocabulary
  MF_TRY(const BpeOptions options, read_bpe_options(*model, fmt::format("{}: model", name)));
  std::array<std::optional<TokenId>, 256> byte_tokens{};
  std::size_t missing = 0;
  for (std::size_t byte = 0; byte < 256; ++byte) {
    std::string spelled;
    append_utf8(spelled, alphabet_character(static_cast<unsigned char>(byte)));
    const auto number = vocabulary.find(spelled);
    if (number) byte_tokens[byte] = vocabulary_ids[*number];
    missing += !number;
  }
  if (options.has_fallback && missing > 0)
    return Error{
        ErrorCode::unsupported,
        fmt::format("{}: model: 'unk_token' or 'byte_fallback' with a vocabulary that lacks {} of the "
                    "256 bytes",
                    name, missing)};
  std::optional<Bpe::WholePieces> whole;
  if (options.ignore_merges) whole = {&vocabulary, vocabulary_ids};
  bpe.emplace(byte_tokens, file.merges, whole, file.seed);
  return {};
}

// Checks that ids and contents are unique over the vocabulary and the added tokens together.
Status Tokenizer::Parts::build_bytes(std::string_view name) {
  std::uint32_t size = 0;
  for (const TokenId id : vocabulary_ids) size = std::max(size, id.index() + 1);
  for (const AddedToken& token : added) size = std::max(size, token.id.index() + 1);
  std::vector<std::string> contents(size);
  std::vector<bool> taken(size);
  for (std::uint32_t i = 0; i < vocabulary.size(); ++i) {
    const std::string_view spelled = vocabulary[i];
    const std::uint32_t id = vocabulary_ids[i].index();
    contents[id] = bytes_of_spelled(spelled).value_or(std::string(spelled));
    taken[id] = true;
  }
  added_by_id.assign(size, nullptr);
  for (const AddedToken& token : added) {
    const std::uint32_t id = token.id.index();
    const auto number = vocabulary.find(token.content);
    const bool same = number && vocabulary_ids[*number] == token.id;
    if (added_by_id[id] != nullptr || (taken[id] && !same))
      return corrupt(name, fmt::format("the id {} of the added token '{}' is also the id of another token",
                                       id, printable(token.content, 60)));
    if (number && !same)
      return corrupt(name, fmt::format("the added token '{}' has the id {}, but {} in the vocabulary",
                                       printable(token.content, 60), id, vocabulary_ids[*number].index()));
    added_by_id[id] = &token;
    contents[id] = token.normalized ? normalizer.normalized(token.content) : token.content;
  }
  bytes.emplace(contents);
  return {};
}

Status Tokenizer::Parts::build_added(std::string_view name) {
  std::vector<AddedTokenSet::Pattern> plain_patterns, normalized_patterns;
  for (const AddedToken& token : added) {
    if (!token.normalized)
      plain_patterns.push_back({token.content, &token});
    else if (std::string text = normalizer.normalized(token.content); !text.empty())
      normalized_patterns.push_back({std::move(text), &token});
  }
  for (auto* patterns : {&plain_patterns, &normalized_patterns}) {
    std::ranges::sort(*patterns, {}, &AddedTokenSet::Pattern::text);
    const auto twice = std::ranges::adjacent_find(*patterns, {}, &AddedTokenSet::Pattern::text);
    if (twice != patterns->end())
      return corrupt(name, fmt::format("the added token '{}' occurs twice", printable(twice->text, 60)));
  }
  plain = AddedTokenSet(std::move(plain_patterns));
  normalized = AddedTokenSet(std::move(normalized_patterns));
  return {};
}

Status Tokenizer::Parts::encode(std::string_view text, AddedTokens which, std::span<const TextRange> data,
                                std::vector<TokenId>& out) {
  const std::size_t before = out.size();
  std::unique_ptr<Scratch> scratch = pool.take();
  scratch->data.assign(data.begin(), data.end());
  if (!is_valid_utf8(text)) {
    make_valid(text, scratch->valid, scratch->data);
    text = scratch->valid;
  }
  Status status = encode_valid(text, which, *scratch, out);
  if (!status) out.erase(out.begin() + static_cast<std::ptrdiff_t>(before), out.end());
  if (text.size() <= kLongTextBytes) pool.give_back(std::move(scratch));
  return status;
}

Status Tokenizer::Parts::encode_valid(std::string_view text, AddedTokens which, Scratch& scratch,
                                      std::vector<TokenId>& out) const {
  scratch.parts.clear();
  if (which == AddedTokens::none || plain.empty()) {
    scratch.parts.push_back({nullptr, {0, text.size()}});
  } else {
    plain.split(text, which == AddedTokens::ordinary, scratch.data, scratch.parts);
  }
  for (const TextPart& part : scratch.parts) {
    if (part.token != nullptr) {
      out.push_back(part.token->id);
    } else {
      MF_TRY_STATUS(encode_between(text, part.range, which, scratch, out));
    }
  }
  return {};
}

Status Tokenizer::Parts::encode_between(std::string_view text, TextRange range, AddedTokens which,
                                        Scratch& scratch, std::vector<TokenId>& out) const {
  text = text.substr(range.begin, range.end - range.begin);
  const bool find_added = which != AddedTokens::none && !normalized.empty();
  scratch.inner_data.clear();
  if (find_added) cut_ranges(scratch.data, range, scratch.inner_data);
  if (!normalizer.changes_nothing()) {
    scratch.normalized = text;
    normalizer.normalize(scratch.normalized, scratch.inner_data);
    text = scratch.normalized;
  }
  if (!find_added) return encode_pieces(text, scratch, out);

  scratch.inner_parts.clear();
  normalized.split(text, which == AddedTokens::ordinary, scratch.inner_data, scratch.inner_parts);
  for (const TextPart& part : scratch.inner_parts) {
    if (part.token != nullptr) {
      out.push_back(part.token->id);
    } else {
      const TextRange& inner = part.range;
      MF_TRY_STATUS(encode_pieces(text.substr(inner.begin, inner.end - inner.begin), scratch, out));
    }
  }
  return {};
}

Status Tokenizer::Parts::encode_pieces(std::string_view text, Scratch& scratch,
                                       std::vector<TokenId>& out) const {
  return pre_tokenizer.split(text, scratch.pre_tokenizer,
                             [&](std::string_view piece) { bpe->encode(piece, scratch.bpe, out); });
}

Result<Tokenizer> Tokenizer::parse(std::string_view json, std::string_view name) {
  MF_TRY(TokenizerFile file, read_tokenizer_json(json, name));
  const Json null;
  const auto section = [&](std::string_view key) -> const Json& {
    const auto found = file.rest.find(key);
    return found == file.rest.end() ? null : *found;
  };
  const auto where = [&](std::string_view key) { return fmt::format("{}: {}", name, key); };

  if (const Json& version = section("version"); !version.is_null() && version != "1.0")
    return Error{ErrorCode::unsupported,
                 fmt::format("{}: expected version 1.0, found {}", name, shown(version))};
  auto parts = std::make_unique<Parts>(file);
  MF_TRY(parts->added, read_added_tokens(section("added_tokens"), where("added_tokens")));
  MF_TRY(parts->normalizer, read_normalizer(section("normalizer"), where("normalizer")));
  MF_TRY(parts->pre_tokenizer, PreTokenizer::parse(section("pre_tokenizer"), where("pre_tokenizer")));
  MF_TRY(parts->surroundings, read_post_processor(section("post_processor"), where("post_processor")));
  MF_TRY_STATUS(check_decoder(section("decoder"), where("decoder")));
  MF_TRY_STATUS(parts->build_bpe(file, name));
  MF_TRY_STATUS(parts->build_bytes(name));
  MF_TRY_STATUS(parts->build_added(name));
  for (const auto* tokens : {&parts->surroundings.begin, &parts->surroundings.end})
    for (const TokenId token : *tokens)
      if (token.index() >= parts->bytes->size())
        return corrupt(name, fmt::format("post_processor: the id {} has no token", token.index()));
  return Tokenizer(std::move(parts));
}

Tokenizer::Tokenizer(std::unique_ptr<Parts> parts) : parts_(std::move(parts)) {}
Tokenizer::Tokenizer(Tokenizer&&) noexcept = default;
Tokenizer& Tokenizer::operator=(Tokenizer&&) noexcept = default;
Tokenizer::~Tokenizer() = default;

Status Tokenizer::encode(std::string_view text, AddedTokens added, std::vector<TokenId>& out) const {
  return parts_->encode(text, added, {}, out);
}

Status Tokenizer::encode(std::string_view text, std::span<const TextRange> data,
                         std::vector<TokenId>& out) const {
  std::size_t end = 0;
  for (const TextRange& range : data) {
    MF_REQUIRE(range.begin >= end && range.end >= range.begin, "ranges of data are ascending and disjoint");
    end = range.end;
  }
  MF_REQUIRE(end <= text.size(), "ranges of data lie in the text");
  return parts_->encode(text, AddedTokens::all, data, out);
}

std::string Tokenizer::decode(std::span<const TokenId> tokens, bool skip_special) const {
  std::string raw, text;
  for (const TokenId token : tokens)
    if (token.index() < vocabulary_size() && !(skip_special && is_special(token)))
      raw += token_bytes()[token];
  append_lossy(text, raw);
  return text;
}

const TokenBytes& Tokenizer::token_bytes() const { return *parts_->bytes; }
std::size_t Tokenizer::vocabulary_size() const { return parts_->bytes->size(); }

std::optional<TokenId> Tokenizer::find(std::string_view content) const {
  for (const AddedToken& token : parts_->added)
    if (token.content == content) return token.id;
  if (const auto number = parts_->vocabulary.find(content)) return parts_->vocabulary_ids[*number];
  return std::nullopt;
}

bool Tokenizer::is_added(TokenId token) const {
  return token.index() < parts_->added_by_id.size() && parts_->added_by_id[token.index()] != nullptr;
}
bool Tokenizer::is_special(TokenId token) const {
  return is_added(token) && parts_->added_by_id[token.index()]->special;
}

std::span<const TokenId> Tokenizer::begin_tokens() const { return parts_->surroundings.begin; }
std::span<const TokenId> Tokenizer::end_tokens() const { return parts_->surroundings.end; }

}  // namespace moeflux
