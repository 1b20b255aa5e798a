#include "text/tokenizer/pre_tokenizer.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <utility>

#include "base/json/object_reader.h"
#include "base/printable.h"
#include "text/tokenizer/regex_rewrite.h"
#include "text/tokenizer/tokenizer_sections.h"

namespace moeflux {
namespace {

constexpr std::size_t kMaxSteps = 16;

// The pattern of ByteLevel with `use_regex`: GPT-2's.
constexpr std::string_view kGpt2Pattern =
    R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)";

constexpr std::pair<std::string_view, SplitBehavior> kBehaviors[] = {
    {"Isolated", SplitBehavior::isolated},
    {"Removed", SplitBehavior::removed},
    {"MergedWithPrevious", SplitBehavior::merged_with_previous},
    {"MergedWithNext", SplitBehavior::merged_with_next},
    {"Contiguous", SplitBehavior::contiguous}};

Error unsupported(std::string_view where, std::string_view why) {
  return {ErrorCode::unsupported, fmt::format("{}: {}", where, why)};
}

// A flag that is absent in older files.
Result<bool> flag(const ObjectReader& reader, std::string_view key, bool otherwise) {
  if (!reader.has(key)) return otherwise;
  return reader.boolean(key);
}

}  // namespace

Result<PreTokenizer> PreTokenizer::parse(const Json& section, std::string_view where) {
  PreTokenizer result;
  if (!section.is_null()) MF_TRY_STATUS(read(section, where, 0, result));
  if (!result.ends_with_byte_level_)
    return unsupported(where,
                       "expected ByteLevel as the last step; only byte-level vocabularies are supported");
  return result;
}

Status PreTokenizer::read(const Json& section, std::string_view where, int depth, PreTokenizer& into) {
  MF_TRY(const ObjectReader reader, ObjectReader::as_object(section, std::string(where)));
  MF_TRY(const std::string type_text, reader.text("type"));
  const std::string_view type = type_text;  // g++ 12 -O3 warns that a string from a Result is uninitialized
  if (type == "Sequence") {
    const Json* members = reader.value("pretokenizers");
    if (members == nullptr || !members->is_array()) return reader.wrong("pretokenizers", "an array");
    if (depth == kMaxSequenceDepth)
      return unsupported(where, fmt::format("sequences nested deeper than {}", kMaxSequenceDepth));
    std::size_t i = 0;
    for (const Json& member : *members)
      MF_TRY_STATUS(read(member, fmt::format("{}[{}]", where, i++), depth + 1, into));
    return {};
  }
  if (into.ends_with_byte_level_)
    return unsupported(where, fmt::format("'{}' after ByteLevel, which must be last", printable(type, 40)));
  if (type == "ByteLevel") return into.read_byte_level(section, where);
  if (type == "Split") return into.read_split(section, where);
  if (type == "Digits") {
    MF_TRY(const bool individual, flag(reader, "individual_digits", false));
    return into.add_step("\\p{N}", individual ? SplitBehavior::isolated : SplitBehavior::contiguous, false,
                         where);
  }
  return unsupported(where, fmt::format("the type '{}' is not supported", printable(type, 40)));
}

Status PreTokenizer::add_step(std::string_view pattern, SplitBehavior behavior, bool invert,
                              std::string_view where) {
  if (steps_.size() == kMaxSteps) return unsupported(where, fmt::format("more than {} steps", kMaxSteps));
  MF_TRY(Regex regex, Regex::compile(pattern, where));
  steps_.push_back({std::move(regex), behavior, invert});
  return {};
}

Status PreTokenizer::read_split(const Json& section, std::string_view where) {
  const ObjectReader reader(section, std::string(where));
  MF_TRY(const std::string behavior, reader.text("behavior"));
  const auto* known = std::ranges::find(kBehaviors, behavior, [](const auto& pair) { return pair.first; });
  if (known == std::end(kBehaviors))
    return unsupported(where, fmt::format("the behavior '{}' is not supported", printable(behavior, 40)));
  MF_TRY(const bool invert, reader.boolean("invert"));
  MF_TRY(const ObjectReader pattern, reader.object("pattern"));
  std::string text;
  if (pattern.has("Regex")) {
    MF_TRY(const std::string regex, pattern.text("Regex"));
    MF_TRY(text, rewrite_regex(regex, where));
  } else {
    MF_TRY(const std::string literal, pattern.text("String"));
    text = regex_of_literal(literal);
  }
  return add_step(text, known->second, invert, where);
}

Status PreTokenizer::read_byte_level(const Json& section, std::string_view where) {
  const ObjectReader reader(section, std::string(where));
  MF_TRY(add_prefix_space_, flag(reader, "add_prefix_space", true));
  MF_TRY(const bool use_regex, flag(reader, "use_regex", true));
  ends_with_byte_level_ = true;
  steps_before_prefix_ = steps_.size();
  if (!use_regex) return {};
  MF_TRY(const std::string pattern, rewrite_regex(kGpt2Pattern, where));
  return add_step(pattern, SplitBehavior::isolated, false, where);
}

Status PreTokenizer::split(std::string_view text, Scratch& scratch,
                           FunctionRef<void(std::string_view piece)> piece) const {
  scratch.cuts_.resize(steps_.size());
  return run(0, text, scratch, piece);
}

Status PreTokenizer::run(std::size_t step, std::string_view text, Scratch& scratch,
                         FunctionRef<void(std::string_view)> piece) const {
  if (text.empty()) return {};
  if (step == steps_before_prefix_ && add_prefix_space_ && !text.starts_with(' ')) {
    // The only use of `prefixed_` at a time: later steps work within this copy.
    scratch.prefixed_.assign(1, ' ');
    scratch.prefixed_ += text;
    text = scratch.prefixed_;
  }
  if (step == steps_.size()) {
    piece(text);
    return {};
  }
  if (steps_[step].behavior == SplitBehavior::isolated) return isolate(step, text, scratch, piece);

  Cuts& cuts = scratch.cuts_[step];
  MF_TRY_STATUS(find_cuts(steps_[step], text, scratch.regex_, cuts));
  for (const Scratch::Cut& cut : cuts)
    MF_TRY_STATUS(
        run(step + 1, text.substr(cut.range.begin, cut.range.end - cut.range.begin), scratch, piece));
  return {};
}

// Every match and every text between matches is a piece, so no list of cuts is needed.
Status PreTokenizer::isolate(std::size_t step, std::string_view text, Scratch& scratch,
                             FunctionRef<void(std::string_view)> piece) const {
  Matches matches(steps_[step].regex, text, scratch.regex_);
  std::size_t done = 0;
  while (true) {
    MF_TRY(const std::optional<TextRange> match, matches.next());
    const TextRange next = match.value_or(TextRange{text.size(), text.size()});
    MF_TRY_STATUS(run(step + 1, text.substr(done, next.begin - done), scratch, piece));
    MF_TRY_STATUS(run(step + 1, text.substr(next.begin, next.end - next.begin), scratch, piece));
    if (!match) return {};
    done = next.end;
  }
}

Status PreTokenizer::find_cuts(const Step& step, std::string_view text, RegexScratch& scratch, Cuts& cuts) {
  cuts.clear();
  Matches matches(step.regex, text, scratch);
  std::size_t done = 0;
  while (true) {
    MF_TRY(const std::optional<TextRange> match, matches.next());
    const std::size_t next = match ? match->begin : text.size();
    if (done != next) cuts.push_back({{done, next}, step.invert});
    if (!match) break;
    cuts.push_back({*match, !step.invert});
    done = match->end;
  }

  // Joins adjacent cuts that belong together. `previous`: whether the previous cut is a match.
  Cuts kept;
  const auto merge = [&](const Scratch::Cut& cut, bool joins) {
    if (!joins || kept.empty()) return kept.push_back(cut);
    TextRange& last = kept.back().range;
    last = {std::min(last.begin, cut.range.begin), std::max(last.end, cut.range.end)};
  };
  bool previous = false;
  const auto follows_other = [&](const Scratch::Cut& cut) {
    const bool before = std::exchange(previous, cut.matches);
    return cut.matches && !before;
  };
  switch (step.behavior) {
    case SplitBehavior::isolated: return {};
    case SplitBehavior::removed:
      std::erase_if(cuts, [](const Scratch::Cut& cut) { return cut.matches; });
      return {};
    case SplitBehavior::contiguous:
      for (const Scratch::Cut& cut : cuts) merge(cut, cut.matches == std::exchange(previous, cut.matches));
      break;
    case SplitBehavior::merged_with_previous:
      for (const Scratch::Cut& cut : cuts) merge(cut, follows_other(cut));
      break;
    case SplitBehavior::merged_with_next:
      std::ranges::reverse(cuts);
      for (const Scratch::Cut& cut : cuts) merge(cut, follows_other(cut));
      std::ranges::reverse(kept);
      break;
  }
  cuts.swap(kept);
  return {};
}

}  // namespace moeflux
