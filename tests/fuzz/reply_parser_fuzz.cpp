// Input: a byte that selects the format, a byte that seeds the cuts, then a reply.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <random>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/json/json.h"
#include "fuzz/promises.h"
#include "text/reply/stop_strings.h"
#include "text/reply/testing/reply_recorder.h"

namespace moeflux::fuzz {
namespace {

// One parameter of each type, and one of several.
const ToolSchemas& schemas() {
  static const ToolSchemas kSchemas = [] {
    const auto tools = parse_json(R"([{"type":"function","function":{"name":"f","parameters":{"properties":{
        "s":{"type":"string"},"i":{"type":"integer"},"n":{"type":"number"},"b":{"type":"boolean"},
        "z":{"type":"null"},"o":{"type":"object"},"a":{"type":"array"},"x":{}}}}}])",
                                  "tools");
    return *ToolSchemas::read(*tools);
  }();
  return kSchemas;
}

std::string without_newlines(std::string text) {
  text.erase(std::remove(text.begin(), text.end(), '\n'), text.end());
  return text;
}

bool is_subsequence(std::string_view part, std::string_view whole) {
  for (const char c : whole)
    if (!part.empty() && part.front() == c) part.remove_prefix(1);
  return part.empty();
}

// The reply without its reasoning tags.
std::string without_reasoning_tags(std::string reply, ReplyFormat format) {
  if (!format.reasoning) return reply;
  if (!format.starts_inside_reasoning) {
    const std::size_t begin = std::min(reply.find_first_not_of('\n'), reply.size());
    if (reply.compare(begin, 7, "<think>") != 0) return reply;
    reply.erase(begin, 7);
  }
  if (const std::size_t end = reply.find("</think>"); end != std::string::npos) reply.erase(end, 8);
  return reply;
}

void require_nothing_lost(std::string_view reply, ReplyFormat format, const RecordedReply& events) {
  const std::string shown = without_newlines(events.reasoning + events.text);
  const std::string expected = without_newlines(without_reasoning_tags(std::string(reply), format));
  if (events.calls.empty()) {
    MF_REQUIRE(shown == expected, "without calls only newlines and the tags of reasoning are not shown");
  } else {
    MF_REQUIRE(is_subsequence(shown, expected), "text is shown in the order of the reply");
  }
  MF_REQUIRE(events.calls.size() == events.end.finished_calls, "finished calls are counted");
  const bool has_tags = reply.find("<think>") != std::string_view::npos || format.starts_inside_reasoning ||
                        reply.find("<tool_call>") != std::string_view::npos ||
                        reply.find("<｜tool▁calls▁begin｜>") != std::string_view::npos;
  MF_REQUIRE(has_tags || events.text == reply, "without tags the text passes byte for byte");
}

void require_same_stops(std::string_view reply, std::minstd_rand& random) {
  const std::vector<std::string> stops{"</", "<think>", "\n\n", "<tool_call>\n<function=", "k>"};
  const auto stopped = [&](const std::vector<std::string_view>& pieces) {
    StopStrings matcher(stops);
    std::string text;
    std::optional<std::size_t> which;
    for (const std::string_view piece : pieces) {
      const StopStrings::Pushed pushed = matcher.push(piece);
      text += pushed.text;
      if (pushed.which) which = pushed.which;
    }
    const StopStrings::Pushed rest = matcher.finish();
    text += rest.text;
    return std::pair(text, rest.which ? rest.which : which);
  };
  const auto whole = stopped({reply});
  MF_REQUIRE(stopped(randomly_cut(reply, random)) == whole, "a stop does not depend on the cuts");
  MF_REQUIRE(reply.starts_with(whole.first), "what is shown is the beginning");
  std::size_t first = reply.size();
  for (const std::string& stop : stops) first = std::min(first, reply.find(stop));
  MF_REQUIRE(whole.first.size() == first, "the first stop string ends the text");
}

void read(std::string_view input) {
  if (input.size() < 2) return;
  const auto choice = static_cast<unsigned char>(input[0]);
  std::minstd_rand random(static_cast<unsigned char>(input[1]) + 1u);
  const std::string_view reply = input.substr(2);

  ReplyFormat format;
  format.tools = static_cast<ToolFormat>(choice % 4);
  format.reasoning = (choice & 4) != 0;
  format.starts_inside_reasoning = format.reasoning && (choice & 8) != 0;
  ReplyLimits limits;
  if ((choice & 16) != 0) limits = {.call_bytes = 64, .calls = 2};

  const RecordedReply whole = record_reply(std::vector{reply}, format, schemas(), limits);
  MF_REQUIRE(record_reply(in_single_bytes(reply), format, schemas(), limits).same_as(whole),
             "cuts do not matter");
  MF_REQUIRE(record_reply(randomly_cut(reply, random), format, schemas(), limits).same_as(whole),
             "cuts do not matter");
  require_nothing_lost(reply, format, whole);
  require_same_stops(reply, random);
}

}  // namespace
}  // namespace moeflux::fuzz

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  moeflux::fuzz::read(moeflux::fuzz::text_of(data, size));
  return 0;
}
