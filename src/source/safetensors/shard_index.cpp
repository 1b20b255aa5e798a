#include "source/safetensors/shard_index.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>
#include <optional>
#include <string>

#include "base/printable.h"
#include "source/safetensors/json_tokens.h"

namespace moeflux {
namespace {

bool is_plain_name(std::string_view file) {
  constexpr std::size_t kLongest = 255;  // what Linux file systems allow
  return !file.empty() && file.size() <= kLongest && file != "." && file != ".." &&
         file.find('/') == std::string_view::npos && printable(file, kLongest) == file;
}

class IndexListener {
 public:
  using number_integer_t = nlohmann::json::number_integer_t;
  using number_unsigned_t = nlohmann::json::number_unsigned_t;
  using number_float_t = nlohmann::json::number_float_t;
  using string_t = nlohmann::json::string_t;
  using binary_t = nlohmann::json::binary_t;
  using Visit = FunctionRef<Status(std::string_view, std::string_view)>;

  IndexListener(std::string_view what, Visit visit) : what_(what), visit_(visit) {}

  std::optional<Error> problem;
  bool has_weight_map = false;

  bool start_object(std::size_t) {
    if (in_map_ && depth_ >= 2) return fail("'weight_map' holds an object where a file name was expected");
    return deeper();
  }
  bool key(string_t& name) {
    if (depth_ == 1) {
      in_map_ = name == "weight_map";
      if (in_map_ && has_weight_map) return fail("'weight_map' appears twice");
      has_weight_map |= in_map_;
    }
    key_ = std::move(name);
    return true;
  }
  bool end_object() {
    --depth_;
    return true;
  }
  bool start_array(std::size_t) {
    if (depth_ == 0 || in_map_) return fail("holds an array where an object or a file name was expected");
    return deeper();
  }
  bool end_array() {
    --depth_;
    return true;
  }
  bool string(string_t& file) {
    if (!in_map_) return scalar();
    if (depth_ != 2) return fail("'weight_map' must be an object");
    if (!is_plain_name(file))
      return fail(
          fmt::format("tensor '{}' is listed in '{}', which is not the name of a file beside the index",
                      printable(key_), printable(file)));
    if (Status status = visit_(key_, file); !status) {
      problem = std::move(status).error();
      return false;
    }
    return true;
  }
  bool null() { return scalar(); }
  bool boolean(bool) { return scalar(); }
  bool number_integer(number_integer_t) { return scalar(); }
  bool number_unsigned(number_unsigned_t) { return scalar(); }
  bool number_float(number_float_t, const string_t&) { return scalar(); }
  bool binary(binary_t&) { return scalar(); }
  bool parse_error(std::size_t position, const std::string&, const nlohmann::detail::exception&) {
    return fail(fmt::format("not valid JSON at byte {}", position));
  }

 private:
  static constexpr std::uint32_t kMaxDepth = 16;

  bool deeper() { return ++depth_ <= kMaxDepth || fail("nested too deeply"); }
  bool scalar() {
    if (depth_ == 0) return fail("expected an object");
    return !in_map_ ||
           fail(fmt::format("'weight_map' must map names to file names, but '{}' does not", printable(key_)));
  }
  bool fail(std::string why) {
    if (!problem) problem = Error{ErrorCode::corrupt_data, fmt::format("{}: {}", what_, why)};
    return false;
  }

  std::string_view what_;
  Visit visit_;
  std::uint32_t depth_ = 0;
  bool in_map_ = false;
  std::string key_;
};

}  // namespace

Status visit_weight_map(std::string_view json, std::string_view what,
                        FunctionRef<Status(std::string_view tensor, std::string_view file)> visit) {
  MF_TRY_STATUS(check_json_tokens(json, what));
  IndexListener listener(what, visit);
  if (!nlohmann::json::sax_parse(json.begin(), json.end(), &listener)) return *std::move(listener.problem);
  if (!listener.has_weight_map)
    return Error{ErrorCode::corrupt_data, fmt::format("{}: 'weight_map' is missing", what)};
  return {};
}

}  // namespace moeflux
