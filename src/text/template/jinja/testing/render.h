#pragma once
// Renders a template in a test. One thread at a time.

#include <string>
#include <string_view>
#include <vector>

#include "base/json/json.h"
#include "text/template/jinja/template.h"

namespace moeflux::jinja::testing {

// The variables are data.
inline Result<MarkedText> render(std::string_view source, const Json& variables = Json::object(),
                                 const Limits& limits = {}) {
  MF_TRY(const Template parsed, Template::parse(source, "test.jinja", limits));
  Variables given;
  for (auto member = variables.begin(); member != variables.end(); ++member)
    given.list.push_back({member.key(), &*member, true});
  return parsed.render(given, limits);
}

// The text, or "error: " and the error message.
inline std::string text_of(std::string_view source, const Json& variables = Json::object(),
                           const Limits& limits = {}) {
  const Result<MarkedText> out = render(source, variables, limits);
  return out ? out->bytes : "error: " + out.error().message();
}

// The text with the data in brackets: "<|user|>[hello]".
inline std::string marked(std::string_view source, const Json& variables = Json::object()) {
  const Result<MarkedText> out = render(source, variables);
  if (!out) return "error: " + out.error().message();
  std::string shown;
  std::size_t at = 0;
  for (const TextRange& range : out->data) {
    shown += out->bytes.substr(at, range.begin - at) + "[" +
             out->bytes.substr(range.begin, range.end - range.begin) + "]";
    at = range.end;
  }
  return shown + out->bytes.substr(at);
}

}  // namespace moeflux::jinja::testing
