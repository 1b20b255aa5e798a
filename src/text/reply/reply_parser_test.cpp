#include "text/reply/reply_parser.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <iterator>
#include <random>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "base/testing/expect_contract.h"
#include "text/reply/testing/reply_recorder.h"

namespace moeflux {
namespace {

using testing::ElementsAre;
using testing::StartsWith;

constexpr ReplyFormat kPlain{};
constexpr ReplyFormat kReasoning{.reasoning = true};
constexpr ReplyFormat kInReasoning{.reasoning = true, .starts_inside_reasoning = true};
constexpr ReplyFormat kQwen{.tools = ToolFormat::qwen_xml, .reasoning = true};
constexpr ReplyFormat kHermes{.tools = ToolFormat::hermes_json, .reasoning = true};
constexpr ReplyFormat kDeepSeek{.tools = ToolFormat::deepseek_v3, .reasoning = true};

std::string contents(const std::filesystem::path& path) {
  std::ifstream file(std::filesystem::path(MOEFLUX_REPOSITORY) / path, std::ios::binary);
  EXPECT_TRUE(file.good()) << path;
  return {std::istreambuf_iterator<char>(file), {}};
}

const ToolSchemas& schemas() {
  static const ToolSchemas kSchemas = [] {
    const auto tools = parse_json(R"([{"type":"function","function":{"name":"add","parameters":{"properties":{
        "a":{"type":"number"},"b":{"type":"integer"},"note":{"type":"string"},"deep":{"type":"boolean"},
        "list":{"type":"array"},"maybe":{"type":["string","null"]}}}}}])",
                                  "tools");
    return *ToolSchemas::read(*tools);
  }();
  return kSchemas;
}

// The events of the whole reply, after checking that they are the same however the reply is cut.
RecordedReply parsed(ReplyFormat format, const std::string& reply, ReplyLimits limits = {}) {
  const auto tell = [&](std::vector<std::string_view> pieces) {
    return record_reply(pieces, format, schemas(), limits);
  };
  const RecordedReply whole = tell({reply});
  const auto expect_same = [&](const RecordedReply& other) {
    EXPECT_EQ(other.lines, whole.lines) << reply;
    EXPECT_TRUE(other.same_as(whole)) << reply;
  };
  expect_same(tell(in_single_bytes(reply)));
  const std::string_view view = reply;
  for (std::size_t cut = 0; cut <= reply.size(); ++cut)
    expect_same(tell({view.substr(0, cut), view.substr(cut)}));
  std::minstd_rand random(1);
  for (int i = 0; i < 50; ++i) expect_same(tell(randomly_cut(reply, random)));
  return whole;
}

void expect_text(ReplyFormat format, const std::string& reply, bool incomplete = false) {
  const RecordedReply all = parsed(format, reply);
  EXPECT_EQ(all.text, reply);
  EXPECT_EQ(all.end.incomplete_call, incomplete) << reply;
  EXPECT_EQ(all.end.finished_calls, 0u) << reply;
}

std::string xml(std::string_view inside) { return "<tool_call>\n" + std::string(inside) + "\n</tool_call>"; }
std::string xml_call(std::string_view parameters) {
  return xml("<function=add>\n" + std::string(parameters) + "</function>");
}
std::string parameter(std::string_view key, std::string_view value) {
  return "<parameter=" + std::string(key) + ">\n" + std::string(value) + "\n</parameter>\n";
}

TEST(ReplyParser, TextWithoutTagsPassesThroughUnchanged) {
  for (const ReplyFormat format : {kPlain, kReasoning, kQwen, kHermes, kDeepSeek}) {
    for (const char* reply : {"", "\n", "\n\n a \n\n", "1 < 2, <b>bold</b>\n", "café 😀 <｜tool▁x",
                              "<tool_call", "<thin", "</think> </tool_call>\n\n\n"})
      EXPECT_EQ(parsed(format, reply).text, reply);
  }
  EXPECT_EQ(parsed(kPlain, "<think>a</think><tool_call>b</tool_call>\n").text,
            "<think>a</think><tool_call>b</tool_call>\n");
}

TEST(ReplyParser, ShowsTextAtOnceExceptPossibleTags) {
  ReplyParser parser(kQwen, schemas());
  std::string shown;
  const auto sink = [&](const ReplyEvent& event) { shown += std::get<ReplyText>(event).text; };
  parser.push("a < b", sink);
  EXPECT_EQ(shown, "a < b");
  parser.push("\n<tool", sink);
  EXPECT_EQ(shown, "a < b");
  parser.push("s>", sink);
  EXPECT_EQ(shown, "a < b\n<tools>");
  EXPECT_EQ(parser.unread_bytes(), 0u);
}

TEST(ReplyParser, ReasoningIsSeparatedAndItsNewlinesAreTrimmed) {
  EXPECT_THAT(parsed(kReasoning, "<think>\nfirst\n\nsecond\n</think>\n\nanswer\n").lines,
              ElementsAre("reasoning: first\n\nsecond", "text: answer\n"));
  EXPECT_THAT(parsed(kReasoning, "\n<think>a</think>b").lines, ElementsAre("reasoning: a", "text: b"));
  EXPECT_THAT(parsed(kReasoning, "<think>\n\n</think>\n\nb").lines, ElementsAre("text: b"));
  EXPECT_THAT(parsed(kInReasoning, "\nwhy\n</think>\nb").lines, ElementsAre("reasoning: why", "text: b"));
}

TEST(ReplyParser, ReasoningComesFirstOrNotAtAll) {
  expect_text(kReasoning, "The tag <think> opens, </think> closes.");
  EXPECT_THAT(parsed(kReasoning, "<think>a</think>b<think>c</think>").lines,
              ElementsAre("reasoning: a", "text: b<think>c</think>"));
  EXPECT_THAT(parsed(kInReasoning, "<think>a</think>b").lines, ElementsAre("reasoning: <think>a", "text: b"));
}

TEST(ReplyParser, UnfinishedReasoningIsReasoning) {
  const RecordedReply all = parsed(kReasoning, "<think>\nhm\n</thi");
  EXPECT_THAT(all.lines, ElementsAre("reasoning: hm\n</thi"));
  EXPECT_TRUE(all.end.incomplete_reasoning);
  EXPECT_THAT(parsed(kInReasoning, "a\n\n").lines, ElementsAre("reasoning: a\n\n"));
  EXPECT_FALSE(parsed(kReasoning, "<think>a</think>").end.incomplete_reasoning);
}

TEST(ReplyParser, ACallInsideReasoningIsReasoning) {
  const std::string call = xml_call("");
  EXPECT_EQ(parsed(kQwen, "<think>" + call + "</think>").reasoning, call);
}

TEST(QwenXml, ACallIsReportedWhileItIsWritten) {
  EXPECT_THAT(
      parsed(kQwen, "Adding.\n\n" + xml_call(parameter("a", "1.5") + parameter("note", "x < y"))).lines,
      ElementsAre("text: Adding.", "started 0: add", R"(arguments 0: {"a": 1.5, "note": "x < y"})",
                  R"(finished 0: add {"a": 1.5, "note": "x < y"})"));

  ReplyParser parser(kQwen, schemas());
  std::string fragments;
  const auto sink = [&](const ReplyEvent& event) {
    if (const auto* arguments = std::get_if<ToolCallArguments>(&event)) fragments += arguments->json_fragment;
  };
  parser.push("<tool_call>\n<function=add>\n<parameter=note>\nfirst wo", sink);
  EXPECT_EQ(fragments, R"({"note": "first wo)");
}

TEST(QwenXml, SurroundingNewlinesOfAValueAreTrimmedOnce) {
  const auto value = [](std::string_view written) {
    return parsed(kQwen, xml_call("<parameter=note>" + std::string(written) + "</parameter>\n")).calls.at(0);
  };
  EXPECT_EQ(value("\nx\n"), R"(add {"note": "x"})");
  EXPECT_EQ(value("x"), R"(add {"note": "x"})");
  EXPECT_EQ(value("\n\n  x \n\n"), R"(add {"note": "\n  x \n"})");
  EXPECT_EQ(value(""), R"(add {"note": ""})");
  EXPECT_EQ(value("\n"), R"(add {"note": ""})");
  EXPECT_EQ(value("\n\n"), R"(add {"note": ""})");
  EXPECT_EQ(value("\n\n\n"), R"(add {"note": "\n"})");
}

TEST(QwenXml, ValuesMayLookLikeTags) {
  const std::string value = "<a></parameter x</parameter\n><function=f></function></tool_call>\n</paramete";
  const auto calls = parsed(kQwen, xml_call(parameter("note", value) + parameter("maybe", value))).calls;
  ASSERT_EQ(calls.size(), 1u);
  const auto arguments = parse_json(std::string_view(calls[0]).substr(4), "arguments");
  ASSERT_TRUE(arguments);
  EXPECT_EQ(*arguments, (Json{{"note", value}, {"maybe", value}}));
}

TEST(QwenXml, ValuesGetTheirTypes) {
  EXPECT_THAT(
      parsed(kQwen, xml_call(parameter("b", "7") + parameter("deep", "True") + parameter("list", "[1, 2]") +
                             parameter("maybe", "None") + parameter("unknown", "7")))
          .calls,
      ElementsAre(R"(add {"b": 7, "deep": true, "list": [1, 2], "maybe": null, "unknown": "7"})"));
  EXPECT_THAT(parsed(kQwen, xml("<function=unknown>" + parameter("b", "7") + "</function>")).calls,
              ElementsAre(R"(unknown {"b": "7"})"));
}

TEST(QwenXml, SeveralCallsWithTextAround) {
  const RecordedReply all = parsed(kQwen, "<think>x</think>\n\nOne.\n" + xml_call("") + "\n" + xml_call("") +
                                              "\n\nTwo.\n" + xml_call(parameter("b", "1")) + "\n");
  EXPECT_THAT(all.lines, ElementsAre("reasoning: x", "text: One.", "started 0: add", "arguments 0: {}",
                                     "finished 0: add {}", "started 1: add", "arguments 1: {}",
                                     "finished 1: add {}", "text: \n\nTwo.", "started 2: add",
                                     R"(arguments 2: {"b": 1})", R"(finished 2: add {"b": 1})"));
  EXPECT_EQ(all.end.finished_calls, 3u);
}

TEST(QwenXml, AMalformedCallIsText) {
  for (const std::string& inside : std::vector<std::string>{
           "nothing", "<function=>", "<function=a\nb></function>", "<function=a></function>x",
           "<function=a>x</function>",
           "<function=a>" + parameter("p", "1") + parameter("p", "2") + "</function>",
           "<function=" + std::string(257, 'n') + "></function>", "<parameter=a>", "{\"name\": \"add\"}"}) {
    expect_text(kQwen, "Before\n\n" + xml(inside) + "\n\nafter\n");
  }
  EXPECT_THAT(parsed(kQwen, xml("<function=add>x</function>")).lines,
              ElementsAre("started 0: add", "arguments 0: {", "abandoned 0",
                          "text: <tool_call>\n<function=add>x</function>\n</tool_call>"));
  EXPECT_THAT(parsed(kQwen, "<tool_call>\n" + xml_call("")).lines,
              ElementsAre("text: <tool_call>", "started 0: add", "arguments 0: {}", "finished 0: add {}"));
}

TEST(QwenXml, ACallThatIsCutShortIsIncompleteText) {
  const std::string reply = "\n" + xml_call(parameter("note", "v") + parameter("b", "2"));
  const std::size_t whole = reply.find("</function>") + std::string_view("</function>").size();
  for (std::size_t size = std::string_view("\n<tool_call>").size(); size < whole; ++size)
    expect_text(kQwen, reply.substr(0, size), true);
  for (std::size_t size = whole; size <= reply.size(); ++size) {
    const RecordedReply all = parsed(kQwen, reply.substr(0, size));
    EXPECT_THAT(all.calls, ElementsAre(R"(add {"note": "v", "b": 2})"));
    EXPECT_EQ(all.text, "");
    EXPECT_FALSE(all.end.incomplete_call);
  }
}

TEST(HermesJson, ArgumentsStayAsTheyAreWritten) {
  EXPECT_THAT(
      parsed(kHermes, "Well.\n" + xml(R"({"name": "add", "arguments": {"a":1,  "t": "</tool_call>\n"}})"))
          .lines,
      ElementsAre("text: Well.", "started 0: add", R"(arguments 0: {"a":1,  "t": "</tool_call>\n"})",
                  R"(finished 0: add {"a":1,  "t": "</tool_call>\n"})"));
  const std::string swapped =
      xml(R"({"id": [{"name": 1}], "parameters" : {"x": {}}, "n\u0061me": "\u0061dd"})");
  EXPECT_THAT(parsed(kHermes, swapped).calls, ElementsAre(R"(add {"x": {}})"));
  EXPECT_THAT(parsed(kHermes, xml(R"({"name": "now"})") + "\n" + xml(R"({"name":"b","arguments":{}})")).calls,
              ElementsAre("now {}", "b {}"));
}

TEST(HermesJson, AMalformedCallIsText) {
  for (const char* inside :
       {"nothing", "[]", "{}", "{\"name\": 5}", "{\"name\": \"\"}", "{\"arguments\": {}}",
        "{\"name\": \"a\", \"arguments\": [1]}", "{\"name\": \"a\", \"arguments\": {\"b\": tru}}",
        "{\"name\": \"a\", \"arguments\": {}, \"parameters\": {}}", "{\"name\": \"a\", \"name\": \"b\"}",
        "{\"name\": \"a\", \"arguments\": {}}}", "{\"name\": \"a\"} x", "{'name': 'a'}",
        "{\"name\": \"a\", \"arguments\": {\"b\": \"line\nline\"}}"}) {
    const RecordedReply all = parsed(kHermes, "Before\n" + xml(inside) + "\nafter");
    EXPECT_EQ(all.text, "Before\n" + xml(inside) + "\nafter");
    EXPECT_EQ(all.end.malformed_calls, 1u) << inside;
  }
}

TEST(HermesJson, ACallThatIsCutShortIsIncompleteText) {
  const std::string reply = xml(R"({"name": "add", "arguments": {"a": [1, "x"]}})");
  const std::size_t whole = reply.find("}}") + 2;
  for (std::size_t size = std::string_view("<tool_call>").size(); size < whole; ++size)
    expect_text(kHermes, reply.substr(0, size), true);
  for (std::size_t size = whole; size <= reply.size(); ++size)
    EXPECT_THAT(parsed(kHermes, reply.substr(0, size)).calls, ElementsAre(R"(add {"a": [1, "x"]})"));
}

constexpr std::string_view kV3Call =
    "<｜tool▁call▁begin｜>function<｜tool▁sep｜>add\n```json\n{\"a\": 1}\n```<｜tool▁call▁end｜>";
constexpr std::string_view kV31Call = "<｜tool▁call▁begin｜>add<｜tool▁sep｜>{\"a\": 1}<｜tool▁call▁end｜>";

std::string section(std::string_view inside) {
  return "<｜tool▁calls▁begin｜>" + std::string(inside) + "<｜tool▁calls▁end｜>";
}

TEST(DeepSeekV3, ReadsBothForms) {
  EXPECT_THAT(
      parsed(kDeepSeek, "Sum:\n\n" + section(kV3Call)).lines,
      ElementsAre("text: Sum:", "started 0: add", R"(arguments 0: {"a": 1})", R"(finished 0: add {"a": 1})"));
  EXPECT_THAT(parsed(kDeepSeek, section(kV31Call)).calls, ElementsAre(R"(add {"a": 1})"));
  EXPECT_THAT(parsed(kDeepSeek, section(std::string(kV3Call) + "\n" + std::string(kV31Call) + "\n")).calls,
              ElementsAre(R"(add {"a": 1})", R"(add {"a": 1})"));
  EXPECT_EQ(parsed(kDeepSeek, section(kV3Call) + "\n\nDone.").text, "\n\nDone.");
}

TEST(DeepSeekV3, AMalformedCallIsText) {
  for (const char* inside :
       {"", "x", "<｜tool▁call▁begin｜><｜tool▁sep｜>{}<｜tool▁call▁end｜>",
        "<｜tool▁call▁begin｜>add<｜tool▁sep｜>{]<｜tool▁call▁end｜>",
        "<｜tool▁call▁begin｜>add<｜tool▁sep｜>{}x",
        "<｜tool▁call▁begin｜>function<｜tool▁sep｜>add {}<｜tool▁call▁end｜>",
        "<｜tool▁call▁begin｜>function<｜tool▁sep｜>add\n```json\n[]\n```<｜tool▁call▁end｜>",
        "<｜tool▁call▁begin｜>function<｜tool▁sep｜>add\n```python\n{}\n```<｜tool▁call▁end｜>"})
    expect_text(kDeepSeek, "Before\n" + section(inside) + "\nafter\n");
  const RecordedReply all = parsed(kDeepSeek, section(std::string(kV31Call) + " and more"));
  EXPECT_EQ(all.calls.size(), 1u);
  EXPECT_EQ(all.text, " and more<｜tool▁calls▁end｜>");
}

TEST(DeepSeekV3, ACallThatIsCutShortIsIncompleteText) {
  const std::string reply = section(kV3Call);
  const std::size_t whole = reply.find("\n```<") + 4;
  for (std::size_t size = std::string_view("<｜tool▁calls▁begin｜>").size(); size < whole; ++size)
    expect_text(kDeepSeek, reply.substr(0, size), true);
  for (std::size_t size = whole; size <= reply.size(); ++size) {
    const RecordedReply all = parsed(kDeepSeek, reply.substr(0, size));
    EXPECT_THAT(all.calls, ElementsAre(R"(add {"a": 1})"));
    EXPECT_EQ(all.text, "");
  }
}

TEST(ReplyParser, ReadsTheRepliesOfTern) {
  const ToolFormat format = detect_tool_format(contents("models/tern/chat_template.jinja"));
  EXPECT_EQ(format, ToolFormat::qwen_xml);
  const auto chats = parse_json(contents("tests/goldens/tern/golden_chat.json"), "golden_chat.json");
  ASSERT_TRUE(chats && chats->is_array());
  std::vector<std::string> calls;
  for (const Json& chat : *chats) {
    const Json& tools = *chat.find("tools");
    const auto known = ToolSchemas::read(tools.is_null() ? Json::array() : tools);
    ASSERT_TRUE(known);
    const auto reply = chat.find("reply")->get<std::string>();
    const RecordedReply all = record_reply(in_single_bytes(reply), {.tools = format}, *known);
    if (reply.starts_with("<tool_call>")) {
      EXPECT_EQ(all.text, "");
      EXPECT_THAT(all.lines, ElementsAre(StartsWith("started 0: "), StartsWith("arguments 0: "),
                                         StartsWith("finished 0: ")));
      calls.insert(calls.end(), all.calls.begin(), all.calls.end());
    } else {
      EXPECT_EQ(all.text, reply);
    }
  }
  EXPECT_THAT(
      calls,
      ElementsAre(R"(get_weather {"city": "Lisbon"})", R"(switch_light {"room": "kitchen", "on": false})",
                  R"(move_robot {"direction": "north", "steps": 7})", R"(get_weather {"city": "Rome"})"));
}

TEST(ReplyParser, MoreCallsThanTheLimitAreText) {
  const std::string reply = xml_call("") + "\n" + xml_call("") + "\n" + xml_call("");
  const RecordedReply all = parsed(kQwen, reply, {.calls = 2});
  EXPECT_EQ(all.calls.size(), 2u);
  EXPECT_EQ(all.text, "\n" + xml_call(""));
  const std::string calls = std::string(kV31Call) + std::string(kV31Call);
  EXPECT_EQ(parsed(kDeepSeek, section(calls), {.calls = 1}).text,
            std::string(kV31Call) + "<｜tool▁calls▁end｜>");
}

// The limit counts the bytes of a call from its opening tag on, to the end of a call or of its closing tag.
TEST(ReplyParser, ACallOfExactlyTheSizeLimitIsACallAndALongerOneIsText) {
  const std::string in_xml = xml_call(parameter("note", std::string(100, 'x')));
  const std::string in_json = xml(R"({"name": "add", "arguments": {"a": [1, "x"]}})");
  const std::string in_section = "<｜tool▁calls▁begin｜>" + std::string(kV3Call);
  for (const auto& [format, call] :
       {std::pair(kQwen, in_xml), std::pair(kHermes, in_json), std::pair(kDeepSeek, in_section)}) {
    const RecordedReply fits = parsed(format, call, {.call_bytes = call.size()});
    EXPECT_EQ(fits.calls.size(), 1u) << call;
    EXPECT_EQ(fits.text, "");
    const RecordedReply too_long = parsed(format, call, {.call_bytes = call.size() - 1});
    EXPECT_EQ(too_long.calls.size(), 0u) << call;
    EXPECT_EQ(too_long.text, call);
  }
}

TEST(ReplyParser, TheArgumentsOfACallHaveTheSameSizeLimit) {
  // A control character is six bytes in JSON: {"note": "\u0001..."}
  const std::string reply = xml_call(parameter("note", std::string(100, '\x01')));
  constexpr std::size_t kArguments = 600 + std::string_view(R"({"note": ""})").size();
  EXPECT_EQ(parsed(kQwen, reply, {.call_bytes = kArguments}).calls.size(), 1u);
  EXPECT_EQ(parsed(kQwen, reply, {.call_bytes = kArguments - 1}).text, reply);
}

TEST(ReplyParser, TheWorkIsLinearInTheReply) {
  // Byte by byte with as much text held back as possible: a push reads unread bytes again.
  const auto work = [](ReplyFormat format, std::string_view begin, std::string_view repeated,
                       std::size_t bytes) {
    std::string reply(begin);
    while (reply.size() < bytes) reply += repeated;
    return record_reply(in_single_bytes(reply), format, schemas()).unread_bytes;
  };
  constexpr std::size_t kBytes = 1'000'000;
  const std::string value = "<tool_call><function=add><parameter=note>";
  const std::string typed = "<tool_call><function=add><parameter=list>";
  EXPECT_LE(work(kQwen, value, "\n</parameter", kBytes), 12 * kBytes);
  EXPECT_LE(work(kQwen, typed, "[\n", kBytes), 12 * kBytes);
  EXPECT_LE(work(kQwen, "<tool_call>", "\n", kBytes), kBytes);
  EXPECT_LE(work(kQwen, "", "<tool_call", kBytes), 10 * kBytes);
  EXPECT_LE(work(kReasoning, "", "\n", kBytes), kBytes);
  EXPECT_LE(work(kInReasoning, "", "\n</think", kBytes), 8 * kBytes);
  EXPECT_LE(work(kHermes, "<tool_call>{\"name\":\"a\",\"arguments\":{\"b\":\"", "<tool_call>", kBytes),
            kBytes);
  EXPECT_LE(work(kDeepSeek, "<｜tool▁calls▁begin｜>", " ", kBytes), kBytes);
}

TEST(ReplyParser, InvalidUtf8PassesThrough) {
  const std::string odd = "\xff\xc3 \xe2\x82\n";
  EXPECT_EQ(parsed(kQwen, odd).text, odd);
  EXPECT_THAT(parsed(kQwen, xml_call(parameter("note", "\xff"))).calls,
              ElementsAre("add {\"note\": \"\xff\"}"));
}

TEST(ReplyParser, NoTextFollowsTheEnd) {
  ReplyParser parser(kPlain, schemas());
  const auto sink = [](const ReplyEvent&) {};
  (void)parser.finish(sink);
  EXPECT_CONTRACT(parser.push("a", sink), "no text follows the end of a reply");
}

}  // namespace
}  // namespace moeflux
