#include "base/json/json.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstddef>
#include <iterator>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/json/json_text.h"
#include "base/printable.h"

namespace moeflux {
namespace {

// The input iterator for the library's parser. It writes its position to `reached`, because the parser does
// not report where in the document an event is.
class Cursor {
 public:
  using iterator_category = std::input_iterator_tag;
  using value_type = char;
  using difference_type = std::ptrdiff_t;
  using pointer = const char*;
  using reference = const char&;

  Cursor(const char* at, const char*& reached) : at_(at), reached_(&reached) {}
  reference operator*() const { return *at_; }
  Cursor& operator++() {
    *reached_ = ++at_;
    return *this;
  }
  friend bool operator==(const Cursor& a, const Cursor& b) { return a.at_ == b.at_; }

 private:
  const char* at_;
  const char** reached_;
};

// Receives the library's events and builds the document. Each open array or object is a Frame. When it
// closes, its children are moved to their final place, and all its keys are compared at once: inserting into
// an ordered_json object one by one would search it each time.
class Builder {
 public:
  Builder(const JsonText& text, const JsonLimits& limits)
      : text_(text), limits_(limits), reached_(text.text().data()) {}

  Result<Json> parse() {
    const std::string_view text = text_.text();
    const Cursor first(text.data(), reached_);
    const Cursor last(text.data() + text.size(), reached_);
    if (!Json::sax_parse(first, last, this)) return *std::move(failure_);
    return std::move(root_);
  }

  bool null() { return add(Json(nullptr)); }
  bool boolean(bool value) { return add(Json(value)); }
  bool number_integer(std::int64_t value) { return add(Json(value)); }
  bool number_unsigned(std::uint64_t value) { return add(Json(value)); }
  bool number_float(double value, const std::string&) { return add(Json(value)); }
  bool string(const std::string& value) { return add(Json(value)); }  // a copy has no spare capacity
  bool binary(const Json::binary_t&) { return false; }                // not in JSON text
  bool start_object(std::size_t) { return open(true); }
  bool start_array(std::size_t) { return open(false); }

  bool key(const std::string& name) {
    frames_.back().members.emplace_back(name, Json());
    frames_.back().key_ends.push_back(last_read());
    return true;
  }

  bool end_object() {
    Frame frame = std::move(frames_.back());
    frames_.pop_back();
    if (has_duplicate(frame)) return false;
    Json::object_t object;
    object.reserve(frame.members.size());
    for (auto& [name, value] : frame.members) object.emplace_back(std::move(name), std::move(value));
    place(Json(std::move(object)));
    return true;
  }

  bool end_array() {
    Json::array_t elements = std::move(frames_.back().elements);
    frames_.pop_back();
    elements.shrink_to_fit();
    place(Json(std::move(elements)));
    return true;
  }

  bool parse_error(std::size_t characters_read, const std::string&,
                   const nlohmann::detail::exception& failure) {
    failure_ = text_.syntax_error(characters_read, failure, complete_);
    return false;
  }

 private:
  struct Frame {
    bool is_object;
    std::vector<std::pair<std::string, Json>> members;
    std::vector<std::size_t> key_ends;  // offset of each key's closing quote
    std::vector<Json> elements;
  };

  bool fail(ErrorCode code, std::size_t offset, std::string_view problem) {
    failure_ = text_.error(code, offset, problem);
    return false;
  }

  std::size_t last_read() const { return static_cast<std::size_t>(reached_ - text_.text().data()) - 1; }

  bool count_value() {
    if (++values_ <= limits_.values) return true;
    return fail(ErrorCode::unsupported, last_read(),
                fmt::format("more than {} values", with_thousands(limits_.values)));
  }

  bool add(Json value) {
    if (!count_value()) return false;
    place(std::move(value));
    return true;
  }

  bool open(bool is_object) {
    if (!count_value()) return false;
    if (frames_.size() == limits_.depth) {
      return fail(ErrorCode::unsupported, last_read(), fmt::format("nested deeper than {}", limits_.depth));
    }
    frames_.push_back({is_object, {}, {}, {}});
    return true;
  }

  void place(Json value) {
    if (frames_.empty()) {
      root_ = std::move(value);
      complete_ = true;
    } else if (frames_.back().is_object) {
      frames_.back().members.back().second = std::move(value);
    } else {
      frames_.back().elements.push_back(std::move(value));
    }
  }

  bool has_duplicate(const Frame& frame) {
    std::vector<const std::pair<std::string, Json>*> sorted;
    sorted.reserve(frame.members.size());
    for (const auto& member : frame.members) sorted.push_back(&member);
    std::sort(sorted.begin(), sorted.end(), [](const auto* a, const auto* b) {
      const auto order = a->first <=> b->first;
      return order == 0 ? a < b : order < 0;
    });
    const auto same_key = [](const auto* a, const auto* b) { return a->first == b->first; };
    const auto twice = std::adjacent_find(sorted.begin(), sorted.end(), same_key);
    if (twice == sorted.end()) return false;
    const auto* second = *std::next(twice);
    const std::size_t key_end = frame.key_ends[static_cast<std::size_t>(second - frame.members.data())];
    fail(ErrorCode::corrupt_data, text_.opening_quote(key_end),
         fmt::format("duplicate key '{}'", printable(second->first, 60)));
    return true;
  }

  const JsonText& text_;
  const JsonLimits limits_;
  const char* reached_;
  std::vector<Frame> frames_;
  std::uint64_t values_ = 0;
  Json root_;
  bool complete_ = false;
  std::optional<Error> failure_;
};

}  // namespace

Result<Json> parse_json(std::string_view text, std::string_view what, JsonLimits limits) {
  const JsonText json(text, what);
  if (text.size() > limits.bytes) {
    return Error(ErrorCode::unsupported,
                 fmt::format("{}: {} bytes, expected at most {}", what, with_thousands(text.size()),
                             with_thousands(limits.bytes)));
  }
  if (text.starts_with("\xEF\xBB\xBF")) {
    return json.error(ErrorCode::corrupt_data, 0, "starts with a byte order mark; save it as plain UTF-8");
  }
  // The library treats a NUL as the end of its input and would ignore the rest.
  if (const std::size_t nul = text.find('\0'); nul != std::string_view::npos) {
    return json.error(ErrorCode::corrupt_data, nul, "NUL byte");
  }
  return Builder(json, limits).parse();
}

}  // namespace moeflux
