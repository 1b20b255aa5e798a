#include "text/tokenizer/tokenizer_json.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <utility>

#include "base/json/json_tokens.h"
#include "base/printable.h"
#include "base/sizes.h"

namespace moeflux {
namespace {

constexpr std::size_t kMaxStringBytes = 1u << 20;
constexpr std::uint32_t kMaxJsonDepth = 32;
constexpr std::uint32_t kMaxOtherValues = 512 * 1024;  // outside of vocabulary and merges
constexpr std::size_t kMaxMembers = 256;               // of such an object; its keys are searched linearly
constexpr std::size_t kMaxMerges = kMaxTokenIds;

Error corrupt(std::string_view name, std::string_view why) {
  return {ErrorCode::corrupt_data, fmt::format("{}: {}", name, why)};
}
Error unsupported(std::string_view name, std::string_view why) {
  return {ErrorCode::unsupported, fmt::format("{}: {}", name, why)};
}

Status check_tokens(std::string_view text, std::string_view name) {
  const std::optional<BadJsonToken> bad = find_bad_json_token(text, kMaxStringBytes);
  if (!bad) return {};
  if (bad->kind == BadJsonToken::Kind::nul)
    return corrupt(name, fmt::format("not valid JSON: a NUL at byte {}", bad->at));
  return unsupported(name, fmt::format("a string, number or space of more than {} bytes at byte {}",
                                       with_thousands(kMaxStringBytes), bad->at));
}

// Receives the events of the parser. A handler returns false to stop after it sets `problem`.
class Listener {
 public:
  using string_t = Json::string_t;

  Listener(std::string_view name, std::uint64_t seed) : vocabulary(seed), name_(name) {}

  // A merge as written in the file.
  struct MergeText {
    std::uint32_t begin, middle, end;  // of its two sides in `merge_texts`
  };
  StringTable vocabulary;
  std::vector<TokenId> ids;
  std::string merge_texts;
  std::vector<MergeText> merges;
  Json root;
  std::optional<Error> problem;
  bool has_vocabulary = false, has_merges = false;

  bool null() { return scalar(Json(nullptr)); }
  bool boolean(bool value) { return scalar(Json(value)); }
  bool number_integer(std::int64_t value) { return scalar(Json(value)); }
  bool number_float(double value, const string_t&) { return scalar(Json(value)); }
  bool binary(const Json::binary_t&) { return false; }  // not in JSON text

  bool number_unsigned(std::uint64_t value) {
    if (place_ != Place::vocabulary) return scalar(Json(value));
    if (value >= kMaxTokenIds)
      return refuse(fmt::format("the token '{}' has the id {}; at most {} ids are supported",
                                printable(key_, 60), value, with_thousands(kMaxTokenIds)));
    if (!vocabulary.add(key_)) return fail(fmt::format("the token '{}' occurs twice", printable(key_, 60)));
    ids.push_back(TokenId{static_cast<std::uint32_t>(value)});
    return true;
  }

  bool string(const string_t& value) {
    if (place_ == Place::merges) return spaced_merge(value);
    if (place_ == Place::merge) return side_of_merge(value);
    return scalar(Json(value));
  }

  bool key(const string_t& name) {
    key_ = name;
    if (place_ == Place::vocabulary) return true;
    if (frames_.back().value.size() == kMaxMembers)
      return refuse(fmt::format("an object with more than {} keys", kMaxMembers));
    if (frames_.back().value.contains(name))
      return fail(fmt::format("duplicate key '{}'", printable(name, 60)));
    frames_.back().key = name;
    frames_.back().value[name] = nullptr;
    return true;
  }

  bool start_object(std::size_t) {
    if (place_ != Place::elsewhere) return unexpected("an object");
    if (is_member_of_model("vocab")) {
      place_ = Place::vocabulary;
      has_vocabulary = true;
      return true;
    }
    return open(Json::object());
  }
  bool end_object() {
    if (place_ == Place::vocabulary) {
      place_ = Place::elsewhere;
      return true;
    }
    return close();
  }
  bool start_array(std::size_t) {
    if (place_ == Place::merges) {
      sides_ = 0;
      place_ = Place::merge;
      return true;
    }
    if (place_ != Place::elsewhere) return unexpected("an array");
    if (is_member_of_model("merges")) {
      place_ = Place::merges;
      has_merges = true;
      return true;
    }
    return open(Json::array());
  }
  bool end_array() {
    if (place_ == Place::merge) {
      place_ = Place::merges;
      return sides_ == 2 || fail("a merge must be a pair of two tokens");
    }
    if (place_ == Place::merges) {
      place_ = Place::elsewhere;
      return true;
    }
    return close();
  }

  bool parse_error(std::size_t position, const std::string&, const nlohmann::detail::exception&) {
    return fail(fmt::format("not valid JSON at byte {}", position));
  }

 private:
  enum class Place { elsewhere, vocabulary, merges, merge };
  struct Frame {
    Json value;
    string_t key;  // of the current member
  };

  bool fail(std::string_view why) {
    if (!problem) problem = corrupt(name_, why);
    return false;
  }
  bool refuse(std::string_view why) {
    if (!problem) problem = unsupported(name_, why);
    return false;
  }
  bool unexpected(std::string_view found) {
    return fail(place_ == Place::vocabulary ? fmt::format("model.vocab: expected an id for '{}', found {}",
                                                          printable(key_, 60), found)
                                            : fmt::format("model.merges: expected tokens, found {}", found));
  }

  bool is_member_of_model(std::string_view key) const {
    return frames_.size() == 2 && frames_[0].key == "model" && frames_[1].value.is_object() &&
           frames_[1].key == key;
  }

  bool scalar(Json value) {
    if (place_ != Place::elsewhere) return unexpected("another value");
    return count() && put(std::move(value));
  }
  bool count() {
    return ++values_ <= kMaxOtherValues ||
           refuse(fmt::format("more than {} values outside of vocabulary and merges",
                              with_thousands(kMaxOtherValues)));
  }
  bool open(Json empty) {
    if (frames_.size() == kMaxJsonDepth) return refuse(fmt::format("nested deeper than {}", kMaxJsonDepth));
    frames_.push_back({std::move(empty), {}});
    return count();
  }
  bool close() {
    Json value = std::move(frames_.back().value);
    frames_.pop_back();
    return put(std::move(value));
  }
  bool put(Json value) {
    if (frames_.empty()) {
      root = std::move(value);
    } else if (frames_.back().value.is_array()) {
      frames_.back().value.push_back(std::move(value));
    } else {
      frames_.back().value[frames_.back().key] = std::move(value);
    }
    return true;
  }

  // "left right". The heading of older files is skipped, as in the reference.
  bool spaced_merge(std::string_view text) {
    if (text.starts_with("#version")) return true;
    const std::size_t space = text.find(' ');
    if (space == std::string_view::npos || text.find(' ', space + 1) != std::string_view::npos)
      return fail(fmt::format("the merge '{}' must be two tokens with a space between", printable(text, 60)));
    sides_ = 0;
    return side_of_merge(text.substr(0, space)) && side_of_merge(text.substr(space + 1));
  }
  bool side_of_merge(std::string_view token) {
    if (sides_ == 2) return fail("a merge must be a pair of two tokens");
    if (sides_ == 0) {
      if (merges.size() == kMaxMerges)
        return refuse(fmt::format("more than {} merges", with_thousands(kMaxMerges)));
      const auto begin = static_cast<std::uint32_t>(merge_texts.size());
      merges.push_back({begin, begin, begin});
    }
    merge_texts += token;
    (sides_ == 0 ? merges.back().middle : merges.back().end) = static_cast<std::uint32_t>(merge_texts.size());
    ++sides_;
    return true;
  }

  std::string_view name_;
  Place place_ = Place::elsewhere;
  std::vector<Frame> frames_;
  string_t key_;
  int sides_ = 0;
  std::uint32_t values_ = 0;
};

Status check_ids(const Listener& read, std::string_view name) {
  std::vector<bool> seen(kMaxTokenIds);
  for (std::uint32_t i = 0; i < read.ids.size(); ++i) {
    const std::uint32_t id = read.ids[i].index();
    if (seen[id])
      return corrupt(name, fmt::format("the id {} of the token '{}' is also the id of another token", id,
                                       printable(read.vocabulary[i], 60)));
    seen[id] = true;
  }
  return {};
}

Result<std::vector<Merge>> resolve_merges(const Listener& read, std::string_view name) {
  std::vector<Merge> merges;
  merges.reserve(read.merges.size());
  const std::string_view texts = read.merge_texts;
  for (const Listener::MergeText& merge : read.merges) {
    const auto id_of = [&](std::uint32_t begin, std::uint32_t end) -> Result<TokenId> {
      const std::string_view token = texts.substr(begin, end - begin);
      const auto number = read.vocabulary.find(token);
      if (!number)
        return corrupt(name, fmt::format("merge {} names '{}', which is not in the vocabulary", merges.size(),
                                         printable(token, 60)));
      return read.ids[*number];
    };
    MF_TRY(const TokenId left, id_of(merge.begin, merge.middle));
    MF_TRY(const TokenId right, id_of(merge.middle, merge.end));
    MF_TRY(const TokenId merged, id_of(merge.begin, merge.end));
    merges.push_back({left, right, merged});
  }
  return merges;
}

}  // namespace

Result<TokenizerFile> read_tokenizer_json(std::string_view text, std::string_view name) {
  if (text.size() > kMaxTokenizerBytes)
    return unsupported(name, fmt::format("{} bytes, expected at most {}", with_thousands(text.size()),
                                         with_thousands(kMaxTokenizerBytes)));
  MF_TRY_STATUS(check_tokens(text, name));
  const std::uint64_t seed = fast_hash(text);
  Listener listener(name, seed);
  if (!Json::sax_parse(text.begin(), text.end(), &listener)) return *std::move(listener.problem);
  if (!listener.root.is_object()) return corrupt(name, "expected an object");
  if (!listener.has_vocabulary) return corrupt(name, "'model.vocab' is missing or is not an object");
  if (!listener.has_merges) return corrupt(name, "'model.merges' is missing or is not an array");
  MF_TRY_STATUS(check_ids(listener, name));
  MF_TRY(std::vector<Merge> merges, resolve_merges(listener, name));
  return TokenizerFile{.rest = std::move(listener.root),
                       .seed = seed,
                       .vocabulary = std::move(listener.vocabulary),
                       .vocabulary_ids = std::move(listener.ids),
                       .merges = std::move(merges)};
}

}  // namespace moeflux
