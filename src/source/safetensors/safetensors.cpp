#include "source/safetensors/safetensors.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>

#include "base/arithmetic.h"
#include "base/printable.h"
#include "source/safetensors/json_tokens.h"

namespace moeflux {
namespace {

// Builds the tensor table from the events of the JSON parser. A callback returns false to stop; `problem`
// then holds the reason.
class HeaderListener {
 public:
  using number_integer_t = nlohmann::json::number_integer_t;
  using number_unsigned_t = nlohmann::json::number_unsigned_t;
  using number_float_t = nlohmann::json::number_float_t;
  using string_t = nlohmann::json::string_t;
  using binary_t = nlohmann::json::binary_t;

  explicit HeaderListener(FileId file) : file_(file) {}

  std::vector<TensorEntry> tensors;
  std::string problem;

  bool start_object(std::size_t) {
    ++depth_;
    if (depth_ == 1) return true;
    if (in_metadata_) return depth_ <= kMetadataDepth || fail("'__metadata__' is nested too deeply");
    if (depth_ == 2) return begin_tensor();
    return fail(fmt::format("{} holds an object where a value was expected", place()));
  }

  bool key(string_t& name) {
    if (depth_ == 1) {
      in_metadata_ = name == "__metadata__";
      tensor_ = {};
      tensor_.name = name;  // a copy, because the parser's string has up to twice the capacity
      return true;
    }
    if (in_metadata_) return true;
    if (name == "dtype") return select(Field::dtype, has_dtype_);
    if (name == "shape") return select(Field::shape, has_shape_);
    if (name == "data_offsets") return select(Field::offsets, has_offsets_);
    return fail(fmt::format("{} has an unknown key '{}'", place(), printable(name)));
  }

  bool end_object() {
    --depth_;
    if (depth_ == 1 && !in_metadata_) return end_tensor();
    return true;
  }

  bool start_array(std::size_t) {
    ++depth_;
    if (in_metadata_ && depth_ > 2)
      return depth_ <= kMetadataDepth || fail("'__metadata__' is nested too deeply");
    const bool expected = depth_ == 3 && (field_ == Field::shape || field_ == Field::offsets);
    return expected || fail(fmt::format("{} holds an array where none was expected", place()));
  }

  bool end_array() {
    --depth_;
    return true;
  }

  bool string(string_t& value) {
    if (in_metadata_ && depth_ >= 2) return true;
    if (depth_ != 2 || field_ != Field::dtype) return unexpected("a string");
    const auto dtype = dtype_from_name(value);
    if (!dtype) return fail(fmt::format("{} has an unknown dtype '{}'", place(), printable(value)));
    tensor_.dtype = *dtype;
    return true;
  }

  bool number_unsigned(number_unsigned_t value) {
    if (in_metadata_ && depth_ >= 2) return true;
    if (depth_ != 3) return unexpected("a number");
    if (field_ == Field::shape) {
      if (tensor_.shape.size() == kMaxTensorRank)
        return fail(fmt::format("{} has more than {} dimensions", place(), kMaxTensorRank));
      tensor_.shape.push_back(value);
    } else {
      if (offsets_seen_ == 2) return fail(fmt::format("{}: expected 2 'data_offsets', found more", place()));
      (offsets_seen_ == 0 ? begin_ : end_) = value;
      ++offsets_seen_;
    }
    return true;
  }

  bool number_integer(number_integer_t value) {
    return in_metadata_ || fail(fmt::format("{} holds the negative number {}", place(), value));
  }
  bool number_float(number_float_t, const string_t& text) {
    return in_metadata_ ||
           fail(fmt::format("{} holds '{}' where a whole number was expected", place(), printable(text)));
  }
  bool null() { return in_metadata_ || unexpected("null"); }
  bool boolean(bool) { return in_metadata_ || unexpected("a boolean"); }
  bool binary(binary_t&) { return unexpected("binary data"); }

  bool parse_error(std::size_t position, const std::string&, const nlohmann::detail::exception&) {
    return fail(fmt::format("not valid JSON at byte {} of the header", position));
  }

 private:
  enum class Field { none, dtype, shape, offsets };
  static constexpr std::uint32_t kMetadataDepth = 16;

  std::string place() const {
    if (depth_ == 0 || tensor_.name.empty()) return "the header";
    return fmt::format("tensor '{}'", printable(tensor_.name));
  }

  bool fail(std::string why) {
    if (problem.empty()) problem = std::move(why);
    return false;
  }
  bool unexpected(std::string_view found) {
    return fail(fmt::format("{} holds {} where it was not expected", place(), found));
  }

  bool select(Field field, bool& seen) {
    if (seen) return fail(fmt::format("{} repeats a key", place()));
    seen = true;
    field_ = field;
    return true;
  }

  bool begin_tensor() {
    has_dtype_ = has_shape_ = has_offsets_ = false;
    offsets_seen_ = 0;
    field_ = Field::none;
    return true;
  }

  bool end_tensor() {
    if (!has_dtype_) return fail(fmt::format("{} has no 'dtype'", place()));
    if (!has_shape_) return fail(fmt::format("{} has no 'shape'", place()));
    if (!has_offsets_ || offsets_seen_ != 2)
      return fail(fmt::format("{}: expected 2 'data_offsets', found {}", place(), offsets_seen_));
    if (tensors.size() == kMaxTensorsInFile)
      return fail(fmt::format("the header lists more than {} tensors", kMaxTensorsInFile));
    if (begin_ > end_)
      return fail(fmt::format("{} ends at data byte {}, before it begins at {}", place(), end_, begin_));
    tensor_.bytes = {file_, begin_, end_ - begin_};
    tensors.push_back(std::move(tensor_));
    return true;
  }

  FileId file_;
  std::uint32_t depth_ = 0;
  bool in_metadata_ = false;
  Field field_ = Field::none;
  bool has_dtype_ = false, has_shape_ = false, has_offsets_ = false;
  TensorEntry tensor_{};
  int offsets_seen_ = 0;
  std::uint64_t begin_ = 0, end_ = 0;
};

Error corrupt(std::string_view what, std::string why) {
  return {ErrorCode::corrupt_data, fmt::format("{}: {}", what, std::move(why))};
}

// Uses subtractions and checked products, so that hostile 64-bit values cannot wrap around a comparison.
Status check_tensor(const TensorEntry& tensor, std::uint64_t data_bytes, std::string_view what) {
  const ByteRange& bytes = tensor.bytes;
  if (bytes.offset > data_bytes || bytes.size > data_bytes - bytes.offset)
    return corrupt(what,
                   fmt::format("tensor '{}' spans data bytes [{}, {}), but the file has only {}; "
                               "the download is probably incomplete",
                               printable(tensor.name), bytes.offset, bytes.offset + bytes.size, data_bytes));
  const auto elements = checked_product(tensor.shape);
  const auto bits = elements ? checked_multiply(*elements, bits_of(tensor.dtype)) : std::nullopt;
  if (!bits || *bits % 8 != 0 || *bits / 8 != bytes.size)
    return corrupt(
        what, fmt::format("tensor '{}' is {} {}, which does not fill its {} bytes", printable(tensor.name),
                          name_of(tensor.dtype), describe_shape(tensor.shape), bytes.size));
  return {};
}

// Requires: ascending names. Returns the number of data bytes that belong to no tensor.
Result<std::uint64_t> check_layout(const std::vector<TensorEntry>& tensors, std::uint64_t data_bytes,
                                   std::string_view what) {
  for (std::size_t i = 1; i < tensors.size(); ++i)
    if (tensors[i - 1].name == tensors[i].name)
      return corrupt(what, fmt::format("tensor '{}' is listed twice", printable(tensors[i].name)));

  std::vector<const TensorEntry*> by_offset;
  by_offset.reserve(tensors.size());
  for (const TensorEntry& tensor : tensors)
    if (tensor.bytes.size > 0) by_offset.push_back(&tensor);
  std::sort(by_offset.begin(), by_offset.end(),
            [](const TensorEntry* a, const TensorEntry* b) { return a->bytes.offset < b->bytes.offset; });
  std::uint64_t claimed = 0;
  const TensorEntry* previous = nullptr;
  for (const TensorEntry* tensor : by_offset) {
    if (previous != nullptr && tensor->bytes.offset - previous->bytes.offset < previous->bytes.size)
      return corrupt(what,
                     fmt::format("tensors '{}' and '{}' overlap at data byte {}", printable(previous->name),
                                 printable(tensor->name), tensor->bytes.offset));
    claimed += tensor->bytes.size;
    previous = tensor;
  }
  return data_bytes - claimed;
}

}  // namespace

std::string describe_shape(const std::vector<std::uint64_t>& shape) {
  return fmt::format("[{}]", fmt::join(shape, ", "));
}

Result<SafetensorsHeader> parse_safetensors_header(std::string_view json, std::uint64_t data_start,
                                                   std::uint64_t data_bytes, FileId file,
                                                   std::string_view what) {
  MF_TRY_STATUS(check_json_tokens(json, what));
  HeaderListener listener(file);
  const bool parsed = nlohmann::json::sax_parse(json.begin(), json.end(), &listener);
  if (!parsed) return corrupt(what, listener.problem);

  SafetensorsHeader header;
  header.tensors = std::move(listener.tensors);
  header.header_bytes = data_start;
  for (const TensorEntry& tensor : header.tensors) MF_TRY_STATUS(check_tensor(tensor, data_bytes, what));
  std::sort(header.tensors.begin(), header.tensors.end(),
            [](const TensorEntry& a, const TensorEntry& b) { return a.name < b.name; });
  MF_TRY(header.unclaimed_bytes, check_layout(header.tensors, data_bytes, what));
  for (TensorEntry& tensor : header.tensors) tensor.bytes.offset += data_start;
  return header;
}

Result<SafetensorsHeader> read_safetensors_header(const ReadFile& input, FileId file) {
  const std::string what = input.path().string();
  MF_TRY(const std::uint64_t file_bytes, input.size());
  constexpr std::uint64_t kLengthField = 8;
  if (file_bytes < kLengthField)
    return corrupt(what,
                   fmt::format("expected a safetensors file, which starts with 8 bytes of header length; "
                               "found a file of {} bytes",
                               file_bytes));
  std::uint64_t json_bytes = 0;
  MF_TRY_STATUS(input.read_exactly(0, std::as_writable_bytes(std::span(&json_bytes, 1))));
  if (json_bytes > kMaxHeaderBytes)
    return corrupt(what,
                   fmt::format("the header claims {} bytes; at most {} are read, so this is probably not a "
                               "safetensors file",
                               json_bytes, kMaxHeaderBytes));
  if (json_bytes > file_bytes - kLengthField)
    return corrupt(what,
                   fmt::format("the header claims {} bytes, and only {} follow its length; the download is "
                               "probably incomplete",
                               json_bytes, file_bytes - kLengthField));
  std::string json(json_bytes, '\0');
  MF_TRY_STATUS(input.read_exactly(kLengthField, std::as_writable_bytes(std::span(json))));
  const std::uint64_t data_start = kLengthField + json_bytes;
  return parse_safetensors_header(json, data_start, file_bytes - data_start, file, what);
}

}  // namespace moeflux
