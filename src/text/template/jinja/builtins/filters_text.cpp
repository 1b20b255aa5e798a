// Filters that return text.

#include <fmt/format.h>

#include <algorithm>

#include "text/template/jinja/binding.h"
#include "text/template/jinja/builtins/characters.h"
#include "text/template/jinja/builtins/filters.h"
#include "text/template/jinja/builtins/formatting.h"
#include "text/template/jinja/builtins/methods.h"
#include "text/template/jinja/evaluation.h"
#include "text/template/jinja/operators.h"

namespace moeflux::jinja {
namespace {

Result<Value> string_filter(Evaluation& evaluation, const Value& input, const Arguments& arguments) {
  MF_TRY_STATUS(bind("string", arguments, {}));
  return str(input, evaluation.heap());
}

// A string method as a filter, applied to str(input).
template <const char* name>
Result<Value> method_filter(Evaluation& evaluation, const Value& input, const Arguments& arguments) {
  MF_TRY(const Value text, str(input, evaluation.heap()));
  return find_case_method(name)(evaluation, text, arguments);
}

constexpr char kUpper[] = "upper";
constexpr char kLower[] = "lower";
constexpr char kCapitalize[] = "capitalize";

// A word begins after whitespace, a hyphen or an opening bracket.
Result<Value> title_filter(Evaluation& evaluation, const Value& input, const Arguments& arguments) {
  MF_TRY_STATUS(bind("title", arguments, {}));
  MF_TRY(const Value text, str(input, evaluation.heap()));
  const std::string_view bytes = text.bytes();
  MF_TRY_STATUS(evaluation.budget().work(bytes.size() * 4));
  TextBuilder out = evaluation.heap().builder();
  bool begins = true;
  std::string character;
  for (std::size_t at = 0; at < bytes.size();) {
    const CodePoint point = code_point_at(bytes, at);
    const bool separates =
        is_space(point.value) || std::u32string_view(U"-({[<").find(point.value) != std::u32string_view::npos;
    character.clear();
    if (begins)
      append_upper(character, point.value);
    else
      append_lower(character, point.value, point.value == 0x3A3 && sigma_ends_word(bytes, at));
    out.add(character, text.text().is_data(at));
    begins = separates;
    at += point.bytes;
  }
  return evaluation.heap().string(std::move(out));
}

Result<Value> trim_filter(Evaluation& evaluation, const Value& input, const Arguments& arguments) {
  MF_TRY(const Bound bound, bind("trim", arguments, {"chars"}));
  MF_TRY(const Value text, str(input, evaluation.heap()));
  return strip(evaluation, text, bound[0].value_or(Value()), StripSide::both);
}

Result<Value> replace_filter(Evaluation& evaluation, const Value& input, const Arguments& arguments) {
  MF_TRY(const Bound bound, bind("replace", arguments, {"old", "new", "count"}, 2));
  MF_TRY(const Value self, str(input, evaluation.heap()));
  MF_TRY(const Value from, str(*bound[0], evaluation.heap()));
  MF_TRY(const Value to, str(*bound[1], evaluation.heap()));
  std::int64_t count = -1;
  if (bound[2] && !bound[2]->is_none()) {
    MF_TRY(count, whole("replace", *bound[2]));
  }
  return replace(evaluation, self, from, to, count);
}

Result<Value> safe_filter(Evaluation& evaluation, const Value& input, const Arguments& arguments) {
  MF_TRY_STATUS(bind("safe", arguments, {}));
  return str(input, evaluation.heap());
}

Result<Value> escape_filter(Evaluation& evaluation, const Value& input, const Arguments& arguments) {
  MF_TRY_STATUS(bind("escape", arguments, {}));
  MF_TRY(const Value value, str(input, evaluation.heap()));
  const std::string_view bytes = value.bytes();
  TextBuilder out = evaluation.heap().builder();
  std::size_t plain = 0;
  for (std::size_t at = bytes.find_first_of("&<>\"'"); at != std::string_view::npos;
       at = bytes.find_first_of("&<>\"'", at + 1)) {
    const std::string_view escaped = bytes[at] == '&'   ? "&amp;"
                                     : bytes[at] == '<' ? "&lt;"
                                     : bytes[at] == '>' ? "&gt;"
                                     : bytes[at] == '"' ? "&#34;"
                                                        : "&#39;";
    out.add(value.text(), plain, at);
    out.add(escaped, value.text().is_data(at));
    plain = at + 1;
  }
  out.add(value.text(), plain, bytes.size());
  return evaluation.heap().string(std::move(out));
}

// An indentation: a number of spaces, or a string.
Result<MarkedText> indentation(std::string_view function, const Value& width, const Heap& heap) {
  if (width.is_string()) return width.text();
  MF_TRY(const std::int64_t count, whole(function, width));
  if (count > 0) MF_TRY_STATUS(heap.budget().room(static_cast<std::uint64_t>(count)));
  return MarkedText::from_template(
      std::string(static_cast<std::size_t>(std::max<std::int64_t>(count, 0)), ' '));
}

Result<Value> indent_filter(Evaluation& evaluation, const Value& input, const Arguments& arguments) {
  MF_TRY(const Bound bound, bind("indent", arguments, {"width", "first", "blank"}));
  MF_TRY_STATUS(text("indent", input));
  MF_TRY(const MarkedText indent,
         indentation("indent", bound[0].value_or(Value::integer(4)), evaluation.heap()));
  const bool first = truth_or(bound[1], false);
  const bool blank = truth_or(bound[2], false);
  MF_TRY_STATUS(evaluation.budget().work(input.bytes().size() * 2));
  std::vector<TextRange> lines = lines_of(input.bytes(), false);
  // Jinja appends a newline before it splits the text, so a text that ends in a newline has an empty last
  // line.
  const std::string_view bytes = input.bytes();
  if (bytes.empty() || is_line_end(code_point_at(bytes, previous_code_point(bytes, bytes.size())).value)) {
    const bool joins = bytes.ends_with('\r');  // "\r" and the added "\n" are one line end
    if (!joins) lines.push_back({bytes.size(), bytes.size()});
  }
  TextBuilder out = evaluation.heap().builder();
  if (first) out.add(indent);
  for (std::size_t i = 0; i < lines.size(); ++i) {
    if (i > 0) out.add("\n");
    if (i > 0 && (blank || lines[i].begin != lines[i].end)) out.add(indent);
    out.add(input.text(), lines[i].begin, lines[i].end);
  }
  return evaluation.heap().string(std::move(out));
}

Result<Value> format_filter(Evaluation& evaluation, const Value& input, const Arguments& arguments) {
  if (!arguments.positional.empty() && !arguments.named.empty())
    return type_error("format() takes positional or named arguments, not both");
  const Heap& heap = evaluation.heap();
  MF_TRY(const Value format, str(input, heap));
  if (arguments.named.empty()) {
    MF_TRY(const Value values, heap.sequence(arguments.positional, SequenceKind::tuple));
    return percent_format(format, values, heap);
  }
  std::vector<std::pair<Value, Value>> entries;
  for (const auto& [name, value] : arguments.named) {
    MF_TRY(Value key, heap.string(name));
    entries.emplace_back(std::move(key), value);
  }
  MF_TRY(const Value values, heap.dict(std::move(entries)));
  return percent_format(format, values, heap);
}

Result<Value> truncate_filter(Evaluation& evaluation, const Value& input, const Arguments& arguments) {
  MF_TRY(const Bound bound, bind("truncate", arguments, {"length", "killwords", "end", "leeway"}));
  const std::optional<std::size_t> input_length = length_of(input);
  if (!input_length) return type_error(fmt::format("a '{}' has no length", type_name(input)));
  const Heap& heap = evaluation.heap();
  MF_TRY(const std::int64_t length, whole("truncate", bound[0].value_or(Value::integer(255))));
  MF_TRY(const Value dots, heap.string("..."));
  const Value end = bound[2].value_or(dots);
  MF_TRY_STATUS(text("truncate", end));
  std::int64_t leeway = 5;
  if (bound[3] && !bound[3]->is_none()) {
    MF_TRY(leeway, whole("truncate", *bound[3]));
  }
  const auto end_length = static_cast<std::int64_t>(end.string().length);
  if (length < end_length || leeway < 0) return type_error("truncate() is given a length that is too small");
  if (static_cast<std::int64_t>(*input_length) - leeway <= length) return input;  // unchanged, of any type
  MF_TRY_STATUS(text("truncate", input));
  std::size_t cut = byte_of_code_point(input.bytes(), static_cast<std::size_t>(length - end_length));
  if (!truth_or(bound[1], false)) {
    const std::size_t space = input.bytes().substr(0, cut).rfind(' ');
    if (space != std::string_view::npos) cut = space;
  }
  TextBuilder out = heap.builder();
  out.add(input.text(), 0, cut);
  out.add(end.text());
  return heap.string(std::move(out));
}

Result<Value> wordcount_filter(Evaluation& evaluation, const Value& input, const Arguments& arguments) {
  MF_TRY_STATUS(bind("wordcount", arguments, {}));
  MF_TRY(const Value value, str(input, evaluation.heap()));
  std::int64_t count = 0;
  bool in_word = false;
  for (std::size_t at = 0; at < value.bytes().size();) {
    const CodePoint point = code_point_at(value.bytes(), at);
    const bool is_word = point.value == U'_' || is_alphabetic(point.value) || is_digit(point.value);
    count += is_word && !in_word ? 1 : 0;
    in_word = is_word;
    at += point.bytes;
  }
  return Value::integer(count);
}

Result<Value> urlencode_filter(Evaluation& evaluation, const Value& input, const Arguments& arguments) {
  MF_TRY_STATUS(bind("urlencode", arguments, {}));
  if (input.is_dict() || (input.is_sequence() && !input.is_string()))
    return Error(ErrorCode::unsupported, "urlencode of anything but a string is not supported");
  MF_TRY(const Value value, str(input, evaluation.heap()));
  TextBuilder out = evaluation.heap().builder();
  for (std::size_t i = 0; i < value.bytes().size(); ++i) {
    const char c = value.bytes()[i];
    const bool plain = (c >= '0' && c <= '9') || ((c | 0x20) >= 'a' && (c | 0x20) <= 'z') ||
                       std::string_view("_.-~/").find(c) != std::string_view::npos;
    if (plain)
      out.add(value.text(), i, i + 1);
    else
      out.add(fmt::format("%{:02X}", static_cast<unsigned char>(c)), value.text().is_data(i));
  }
  return evaluation.heap().string(std::move(out));
}

// Hugging Face's tojson: json.dumps without the HTML escapes of Jinja's filter.
Result<Value> tojson_filter(Evaluation& evaluation, const Value& input, const Arguments& arguments) {
  MF_TRY(const Bound bound, bind("tojson", arguments, {"ensure_ascii", "indent", "separators", "sort_keys"}));
  JsonStyle style;
  style.ensure_ascii = truth_or(bound[0], false);
  style.sort_keys = truth_or(bound[3], false);
  if (bound[1] && !bound[1]->is_none()) {
    MF_TRY(const MarkedText indent, indentation("tojson", *bound[1], evaluation.heap()));
    style.indent = indent.bytes;
    style.item_separator = ",";
  }
  if (bound[2] && !bound[2]->is_none()) {
    MF_TRY(const std::vector<Value> both, elements(*bound[2], evaluation.heap()));
    if (both.size() != 2) return type_error("tojson() expects two separators");
    MF_TRY(style.item_separator, text("tojson", both[0]));
    MF_TRY(style.key_separator, text("tojson", both[1]));
  }
  return json_dump(input, style, evaluation.heap());
}

Result<Value> center_filter(Evaluation& evaluation, const Value& input, const Arguments& arguments) {
  MF_TRY(const Bound bound, bind("center", arguments, {"width"}));
  MF_TRY(const Value value, str(input, evaluation.heap()));
  return find_case_method("center")(evaluation, value, {{bound[0].value_or(Value::integer(80))}, {}});
}

}  // namespace

FilterFunction find_text_filter(std::string_view name) {
  static constexpr std::pair<std::string_view, FilterFunction> kFilters[] = {
      {"capitalize", method_filter<kCapitalize>},
      {"center", center_filter},
      {"e", escape_filter},
      {"escape", escape_filter},
      {"forceescape", escape_filter},
      {"format", format_filter},
      {"indent", indent_filter},
      {"lower", method_filter<kLower>},
      {"replace", replace_filter},
      {"safe", safe_filter},
      {"string", string_filter},
      {"title", title_filter},
      {"tojson", tojson_filter},
      {"trim", trim_filter},
      {"truncate", truncate_filter},
      {"upper", method_filter<kUpper>},
      {"urlencode", urlencode_filter},
      {"wordcount", wordcount_filter},
  };
  const auto* found = std::find_if(std::begin(kFilters), std::end(kFilters),
                                   [&](const auto& filter) { return filter.first == name; });
  return found == std::end(kFilters) ? nullptr : found->second;
}

}  // namespace moeflux::jinja
