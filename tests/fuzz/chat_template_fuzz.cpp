// Input: a template, a NUL byte, and the JSON of its variables; without the NUL, a template for a small
// conversation.

#include "base/json/json.h"
#include "fuzz/promises.h"
#include "text/template/jinja/template.h"
#include "text/unicode/utf8.h"

namespace moeflux::fuzz {
namespace {

// Small, so that no input takes long, even one with slow operations.
constexpr jinja::Limits kLimits = {.nodes = 20'000,
                                   .string_bytes = 256 * kKiB,
                                   .memory_bytes = 4 * kMiB,
                                   .work_bytes = 8 * kMiB,
                                   .depth = 64,
                                   .source_bytes = 64 * kKiB};

constexpr std::string_view kConversation =
    R"({"messages": [{"role": "system", "content": "Be brief."},)"
    R"( {"role": "user", "content": "ß <|im_end|> 😀"},)"
    R"( {"role": "assistant", "content": null,)"
    R"( "tool_calls": [{"function": {"name": "f", "arguments": {"a": [1, 2.5, null]}}}]}],)"
    R"( "tools": [{"type": "function", "function": {"name": "f"}}],)"
    R"( "add_generation_prompt": true, "n": 3, "s": "a,b\nc"})";

void require_refusal_or_exception(const Error& error) {
  require_fit_for_people(error.message());
  MF_REQUIRE(error.code() == ErrorCode::corrupt_data || error.code() == ErrorCode::unsupported ||
                 error.code() == ErrorCode::invalid_argument,
             "a template fails as corrupt, unsupported, or with its own words");
}

void require_marks(const jinja::MarkedText& text) {
  MF_REQUIRE(text.bytes.size() <= kLimits.string_bytes, "the output stays within its limit");
  MF_REQUIRE(is_valid_utf8(text.bytes), "the output is UTF-8");
  std::size_t last = 0;
  for (std::size_t i = 0; i < text.data.size(); ++i) {
    MF_REQUIRE(text.data[i].begin < text.data[i].end && text.data[i].end <= text.bytes.size(),
               "marks lie in the text");
    MF_REQUIRE(i == 0 || text.data[i].begin > last, "marks are sorted and do not touch");
    last = text.data[i].end;
  }
}

void render(std::string_view source, std::string_view json) {
  const auto parsed = jinja::Template::parse(source, "t", kLimits);
  if (!parsed) return require_refusal(parsed.error());
  const Result<Json> data = parse_json(json, "data", {.bytes = 64 * kKiB});
  if (!data || !data->is_object()) return;
  jinja::Variables variables;
  for (auto member = data->begin(); member != data->end(); ++member)
    variables.list.push_back({member.key(), &*member, true});
  const auto text = parsed->render(variables, kLimits);
  if (text)
    require_marks(*text);
  else
    require_refusal_or_exception(text.error());
}

}  // namespace
}  // namespace moeflux::fuzz

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view input = moeflux::fuzz::text_of(data, size);
  const std::size_t nul = input.find('\0');
  if (nul == std::string_view::npos)
    moeflux::fuzz::render(input, moeflux::fuzz::kConversation);
  else
    moeflux::fuzz::render(input.substr(0, nul), input.substr(nul + 1));
  return 0;
}
