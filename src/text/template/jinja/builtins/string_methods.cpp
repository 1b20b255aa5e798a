// String methods that search, split and join.

#include <fmt/format.h>
#include <string.h>

#include <algorithm>
#include <span>

#include "text/template/jinja/binding.h"
#include "text/template/jinja/builtins/characters.h"
#include "text/template/jinja/builtins/formatting.h"
#include "text/template/jinja/builtins/methods.h"
#include "text/template/jinja/evaluation.h"
#include "text/template/jinja/operators.h"

namespace moeflux::jinja {
namespace {

constexpr std::size_t kNowhere = std::string_view::npos;

// memmem is linear for every needle.
std::size_t find_from(std::string_view text, std::string_view what, std::size_t from) {
  if (from > text.size()) return kNowhere;
  if (what.empty()) return from;
  const void* found = memmem(text.data() + from, text.size() - from, what.data(), what.size());
  return found == nullptr ? kNowhere
                          : static_cast<std::size_t>(static_cast<const char*>(found) - text.data());
}

// Finds the last occurrence with a naive search, whose worst case is charged in advance.
Result<std::size_t> find_last(std::string_view text, std::string_view what, Budget& budget) {
  MF_TRY_STATUS(budget.work(text.size() * (1 + what.size() / 16)));
  return text.rfind(what);
}

Result<Value> part(const Value& self, std::size_t begin, std::size_t end, const Heap& heap) {
  return heap.string(slice(self.text(), begin, end));
}

// The bytes [begin, end) selected by the optional arguments start and end, which count code points.
Result<std::optional<TextRange>> region(const Value& self, const std::optional<Value>& start,
                                        const std::optional<Value>& stop) {
  const auto length = static_cast<std::int64_t>(self.string().length);
  const auto resolved = [&](const std::optional<Value>& value,
                            std::int64_t otherwise) -> Result<std::int64_t> {
    if (!value || value->is_none()) return otherwise;
    MF_TRY(std::int64_t at, whole("find", *value));
    return at < 0 ? std::max<std::int64_t>(at + length, 0) : at;
  };
  MF_TRY(const std::int64_t begin, resolved(start, 0));
  MF_TRY(const std::int64_t end, resolved(stop, length));
  if (begin > std::min(end, length)) return std::optional<TextRange>();
  const auto byte = [&](std::int64_t at) {
    return byte_of_code_point(self.bytes(), static_cast<std::size_t>(std::min(at, length)));
  };
  return std::optional(TextRange{byte(begin), byte(end)});
}

// The byte of `self` at which `what` begins, or kNowhere.
Result<std::size_t> search(Evaluation& evaluation, const Value& self, const Bound& bound, bool from_the_end) {
  MF_TRY(const std::string_view what, text("find", *bound[0]));
  MF_TRY_STATUS(evaluation.budget().work(self.bytes().size() + what.size()));
  MF_TRY(const std::optional<TextRange> within, region(self, bound[1], bound[2]));
  if (!within) return kNowhere;
  const std::string_view inside = self.bytes().substr(within->begin, within->end - within->begin);
  std::size_t at = kNowhere;
  if (from_the_end) {
    MF_TRY(at, find_last(inside, what, evaluation.budget()));
  } else {
    at = find_from(inside, what, 0);
  }
  return at == kNowhere ? kNowhere : at + within->begin;
}

template <bool from_the_end, bool must_be_there>
Result<Value> find_method(Evaluation& evaluation, const Value& self, const Arguments& arguments) {
  MF_TRY(const Bound bound, bind("find", arguments, {"sub", "start", "end"}, 1));
  MF_TRY(const std::size_t at, search(evaluation, self, bound, from_the_end));
  if (at == kNowhere) {
    if (must_be_there) return type_error("index(): the substring is not in the string");
    return Value::integer(-1);
  }
  return Value::integer(static_cast<std::int64_t>(count_code_points(self.bytes().substr(0, at))));
}

Result<Value> count_method(Evaluation& evaluation, const Value& self, const Arguments& arguments) {
  MF_TRY(const Bound bound, bind("count", arguments, {"sub", "start", "end"}, 1));
  MF_TRY(const std::string_view what, text("count", *bound[0]));
  MF_TRY_STATUS(evaluation.budget().work(self.bytes().size() + what.size()));
  MF_TRY(const std::optional<TextRange> within, region(self, bound[1], bound[2]));
  if (!within) return Value::integer(0);
  const std::string_view inside = self.bytes().substr(within->begin, within->end - within->begin);
  if (what.empty()) return Value::integer(static_cast<std::int64_t>(count_code_points(inside)) + 1);
  std::int64_t count = 0;
  for (std::size_t at = find_from(inside, what, 0); at != kNowhere;
       at = find_from(inside, what, at + what.size())) {
    MF_TRY_STATUS(evaluation.budget().work(what.size()));
    ++count;
  }
  return Value::integer(count);
}

template <bool at_end>
Result<Value> affix_method(Evaluation& evaluation, const Value& self, const Arguments& arguments) {
  const std::string_view name = at_end ? "endswith" : "startswith";
  MF_TRY(const Bound bound, bind(name, arguments, {"prefix", "start", "end"}, 1));
  MF_TRY(const std::optional<TextRange> within, region(self, bound[1], bound[2]));
  std::vector<Value> candidates = {*bound[0]};
  if (bound[0]->is_sequence(SequenceKind::tuple)) candidates = bound[0]->sequence().items;
  for (const Value& candidate : candidates) {
    MF_TRY(const std::string_view affix, text(name, candidate));
    MF_TRY_STATUS(evaluation.budget().work(affix.size()));
    if (!within) continue;
    const std::string_view inside = self.bytes().substr(within->begin, within->end - within->begin);
    if (at_end ? inside.ends_with(affix) : inside.starts_with(affix)) return Value::boolean(true);
  }
  return Value::boolean(false);
}

template <bool at_end>
Result<Value> remove_affix_method(Evaluation& evaluation, const Value& self, const Arguments& arguments) {
  const std::string_view name = at_end ? "removesuffix" : "removeprefix";
  MF_TRY(const Bound bound, bind(name, arguments, {"affix"}, 1));
  MF_TRY(const std::string_view affix, text(name, *bound[0]));
  const std::string_view bytes = self.bytes();
  if (affix.empty() || !(at_end ? bytes.ends_with(affix) : bytes.starts_with(affix))) return self;
  const std::size_t begin = at_end ? 0 : affix.size();
  return part(self, begin, begin + bytes.size() - affix.size(), evaluation.heap());
}

Result<Value> parts_of(const Value& self, std::span<const TextRange> ranges, const Heap& heap) {
  MF_TRY_STATUS(heap.budget().room(ranges.size() * sizeof(StringObject)));
  std::vector<Value> items;
  items.reserve(ranges.size());
  for (const TextRange& range : ranges) {
    MF_TRY(Value piece, part(self, range.begin, range.end, heap));
    items.push_back(std::move(piece));
  }
  return heap.sequence(std::move(items));
}

// Words separated by whitespace, with at most `limit` cuts.
std::vector<TextRange> words(std::string_view text, std::uint64_t limit) {
  std::vector<TextRange> out;
  std::size_t at = 0;
  while (true) {
    while (at < text.size() && is_space(code_point_at(text, at).value)) at += code_point_at(text, at).bytes;
    if (at >= text.size()) return out;
    std::size_t end = at;
    if (out.size() >= limit) {
      out.push_back({at, text.size()});  // including spaces at the end
      return out;
    }
    while (end < text.size() && !is_space(code_point_at(text, end).value))
      end += code_point_at(text, end).bytes;
    out.push_back({at, end});
    at = end;
  }
}

std::vector<TextRange> words_from_end(std::string_view text, std::uint64_t limit) {
  std::vector<TextRange> out;
  std::size_t end = text.size();
  const auto space_before = [&](std::size_t at) {
    return is_space(code_point_at(text, previous_code_point(text, at)).value);
  };
  while (true) {
    while (end > 0 && space_before(end)) end = previous_code_point(text, end);
    if (end == 0) break;
    std::size_t begin = end;
    if (out.size() >= limit) {
      out.push_back({0, end});
      break;
    }
    while (begin > 0 && !space_before(begin)) begin = previous_code_point(text, begin);
    out.push_back({begin, end});
    end = begin;
  }
  std::reverse(out.begin(), out.end());
  return out;
}

template <bool from_the_end>
Result<Value> split_method(Evaluation& evaluation, const Value& self, const Arguments& arguments) {
  MF_TRY(const Bound bound, bind("split", arguments, {"sep", "maxsplit"}));
  MF_TRY(const std::int64_t most, whole("split", bound[1].value_or(Value::integer(-1))));
  const std::uint64_t limit = most < 0 ? UINT64_MAX : static_cast<std::uint64_t>(most);
  const std::string_view bytes = self.bytes();
  MF_TRY_STATUS(evaluation.budget().work(bytes.size() * 2));
  if (!bound[0] || bound[0]->is_none()) {
    return parts_of(self, from_the_end ? words_from_end(bytes, limit) : words(bytes, limit),
                    evaluation.heap());
  }
  MF_TRY(const std::string_view separator, text("split", *bound[0]));
  if (separator.empty()) return type_error("split() is given an empty separator");
  std::vector<TextRange> out;
  std::size_t begin = 0;
  std::size_t end = bytes.size();
  while (out.size() < limit) {
    MF_TRY_STATUS(evaluation.budget().work(separator.size()));
    std::size_t at = kNowhere;
    if (from_the_end) {
      // Each search is charged for the bytes it passes, which add up to the text once.
      MF_TRY_STATUS(evaluation.budget().work(separator.size() > 16 ? end * (separator.size() / 16) : 0));
      at = bytes.substr(0, end).rfind(separator);
    } else {
      at = find_from(bytes, separator, begin);
    }
    if (at == kNowhere) break;
    if (from_the_end) {
      out.push_back({at + separator.size(), end});
      end = at;
    } else {
      out.push_back({begin, at});
      begin = at + separator.size();
    }
  }
  out.push_back({begin, end});
  if (from_the_end) std::reverse(out.begin(), out.end());
  return parts_of(self, std::move(out), evaluation.heap());
}

template <bool from_the_end>
Result<Value> partition_method(Evaluation& evaluation, const Value& self, const Arguments& arguments) {
  MF_TRY(const Bound bound, bind("partition", arguments, {"sep"}, 1));
  MF_TRY(const std::string_view separator, text("partition", *bound[0]));
  if (separator.empty()) return type_error("partition() is given an empty separator");
  const Heap& heap = evaluation.heap();
  MF_TRY_STATUS(heap.budget().work(self.bytes().size()));
  std::size_t at = find_from(self.bytes(), separator, 0);
  if (from_the_end) {
    MF_TRY(at, find_last(self.bytes(), separator, heap.budget()));
  }
  MF_TRY(Value empty, heap.string(""));
  if (at == kNowhere) {
    if (from_the_end) return heap.sequence({empty, empty, self}, SequenceKind::tuple);
    return heap.sequence({self, empty, empty}, SequenceKind::tuple);
  }
  MF_TRY(Value before, part(self, 0, at, heap));
  MF_TRY(Value middle, part(self, at, at + separator.size(), heap));
  MF_TRY(Value after, part(self, at + separator.size(), self.bytes().size(), heap));
  return heap.sequence({before, middle, after}, SequenceKind::tuple);
}

Result<Value> splitlines_method(Evaluation& evaluation, const Value& self, const Arguments& arguments) {
  MF_TRY(const Bound bound, bind("splitlines", arguments, {"keepends"}));
  MF_TRY_STATUS(evaluation.budget().work(self.bytes().size()));
  return parts_of(self, lines_of(self.bytes(), truth_or(bound[0], false)), evaluation.heap());
}

template <StripSide side>
Result<Value> strip_method(Evaluation& evaluation, const Value& self, const Arguments& arguments) {
  MF_TRY(const Bound bound, bind("strip", arguments, {"chars"}));
  return strip(evaluation, self, bound[0].value_or(Value()), side);
}

Result<Value> replace_method(Evaluation& evaluation, const Value& self, const Arguments& arguments) {
  MF_TRY(const Bound bound, bind("replace", arguments, {"old", "new", "count"}, 2));
  MF_TRY(const std::int64_t count, whole("replace", bound[2].value_or(Value::integer(-1))));
  return replace(evaluation, self, *bound[0], *bound[1], count);
}

Result<Value> join_method(Evaluation& evaluation, const Value& self, const Arguments& arguments) {
  MF_TRY(const Bound bound, bind("join", arguments, {"iterable"}, 1));
  MF_TRY(const std::vector<Value> items, elements(*bound[0], evaluation.heap()));
  TextBuilder out = evaluation.heap().builder();
  for (std::size_t i = 0; i < items.size(); ++i) {
    MF_TRY_STATUS(text("join", items[i]));
    if (i > 0) out.add(self.text());
    out.add(items[i].text());
  }
  return evaluation.heap().string(std::move(out));
}

Result<Value> format_method(Evaluation& evaluation, const Value& self, const Arguments& arguments) {
  return brace_format(evaluation, self, arguments);
}

}  // namespace

std::vector<TextRange> lines_of(std::string_view text, bool keep_ends) {
  std::vector<TextRange> out;
  std::size_t begin = 0;
  for (std::size_t at = 0; at < text.size();) {
    const CodePoint point = code_point_at(text, at);
    std::size_t next = at + point.bytes;
    if (is_line_end(point.value)) {
      if (point.value == U'\r' && next < text.size() && text[next] == '\n') ++next;
      out.push_back({begin, keep_ends ? next : at});
      begin = next;
    }
    at = next;
  }
  if (begin < text.size()) out.push_back({begin, text.size()});
  return out;
}

Result<Value> strip(Evaluation& evaluation, const Value& self, const Value& characters, StripSide side) {
  const std::string_view bytes = self.bytes();
  std::string_view set;
  if (!characters.is_none()) {
    MF_TRY(set, text("strip", characters));
  }
  std::uint64_t looked_at = 0;
  const auto strips = [&](std::size_t at) {
    const CodePoint point = code_point_at(bytes, at);
    if (characters.is_none()) return is_space(point.value);
    looked_at += set.size();
    // A UTF-8 character never occurs inside another one.
    return set.find(bytes.substr(at, point.bytes)) != kNowhere;
  };
  std::size_t begin = 0;
  std::size_t end = bytes.size();
  while (side != StripSide::right && begin < end && strips(begin)) {
    begin += code_point_at(bytes, begin).bytes;
    if (looked_at > (1u << 20)) MF_TRY_STATUS(evaluation.budget().work(std::exchange(looked_at, 0)));
  }
  while (side != StripSide::left && end > begin && strips(previous_code_point(bytes, end))) {
    end = previous_code_point(bytes, end);
    if (looked_at > (1u << 20)) MF_TRY_STATUS(evaluation.budget().work(std::exchange(looked_at, 0)));
  }
  MF_TRY_STATUS(evaluation.budget().work(looked_at));
  if (begin == 0 && end == bytes.size()) return self;
  return part(self, begin, end, evaluation.heap());
}

Result<Value> replace(Evaluation& evaluation, const Value& self, const Value& from, const Value& to,
                      std::int64_t count) {
  MF_TRY(const std::string_view old_text, text("replace", from));
  MF_TRY_STATUS(text("replace", to));
  const std::string_view bytes = self.bytes();
  MF_TRY_STATUS(evaluation.budget().work(bytes.size()));
  TextBuilder out = evaluation.heap().builder();
  std::uint64_t left = count < 0 ? UINT64_MAX : static_cast<std::uint64_t>(count);
  std::size_t begin = 0;
  while (left > 0 && !out.over()) {
    std::size_t at = find_from(bytes, old_text, begin);
    if (at == kNowhere) break;
    MF_TRY_STATUS(evaluation.budget().work(old_text.size() + to.bytes().size()));
    out.add(self.text(), begin, at);
    out.add(to.text());
    --left;
    begin = at + old_text.size();
    if (old_text.empty()) {  // matches between all characters and at both ends
      if (at >= bytes.size()) break;
      begin = at + code_point_at(bytes, at).bytes;
      out.add(self.text(), at, begin);
    }
  }
  out.add(self.text(), begin, bytes.size());
  return evaluation.heap().string(std::move(out));
}

StringMethod find_string_method(std::string_view name) {
  static constexpr std::pair<std::string_view, StringMethod> kMethods[] = {
      {"count", count_method},
      {"endswith", affix_method<true>},
      {"find", find_method<false, false>},
      {"format", format_method},
      {"index", find_method<false, true>},
      {"join", join_method},
      {"lstrip", strip_method<StripSide::left>},
      {"partition", partition_method<false>},
      {"removeprefix", remove_affix_method<false>},
      {"removesuffix", remove_affix_method<true>},
      {"replace", replace_method},
      {"rfind", find_method<true, false>},
      {"rindex", find_method<true, true>},
      {"rpartition", partition_method<true>},
      {"rsplit", split_method<true>},
      {"rstrip", strip_method<StripSide::right>},
      {"split", split_method<false>},
      {"splitlines", splitlines_method},
      {"startswith", affix_method<false>},
      {"strip", strip_method<StripSide::both>},
  };
  const auto* found = std::find_if(std::begin(kMethods), std::end(kMethods),
                                   [&](const auto& method) { return method.first == name; });
  return found == std::end(kMethods) ? nullptr : found->second;
}

}  // namespace moeflux::jinja
