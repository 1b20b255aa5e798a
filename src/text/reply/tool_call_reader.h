#pragma once
// A ToolCallReader reads the tool calls of one format from text that arrives in pieces. Internal to
// reply_parser.cpp.
//
// It consumes as much of the unread text as it can decide and leaves the rest, less than 1 KiB, which may be
// the beginning of something longer. What it has consumed depends on the text only, not on how the text was
// cut. States: idle -> begin() -> reading calls -> idle. One thread at a time.

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "text/reply/reply_format.h"
#include "text/reply/tool_schemas.h"

namespace moeflux {

// A call, as far as it is read.
struct ToolCall {
  std::string name;
  std::string arguments;     // JSON; complete if the call is
  bool has_started = false;  // the name is known

  void clear() {
    name.clear();
    arguments.clear();
    has_started = false;
  }
};

class ToolCallReader {
 public:
  enum class Progress : std::uint8_t {
    needs_more,     // consumed all that can be decided
    call_complete,  // `call` is complete; read on
    section_over,   // the closing tag is consumed
    malformed,      // the unread text does not fit the format
  };

  virtual ~ToolCallReader() = default;

  // The tag before a call, or before a section of calls.
  virtual std::string_view opening_tag() const = 0;

  // Starts after an opening tag.
  virtual void begin() = 0;

  // Consumes text from the front of `unread`. `ended`: no more text will come; then a call that lacks only
  // the end of its closing tag is complete.
  virtual Progress read(std::string_view& unread, bool ended, ToolCall& call) = 0;
};

// Null for ToolFormat::none. `schemas` outlives the reader.
std::unique_ptr<ToolCallReader> make_tool_call_reader(ToolFormat format, const ToolSchemas& schemas);

std::unique_ptr<ToolCallReader> make_qwen_xml_reader(const ToolSchemas& schemas);
std::unique_ptr<ToolCallReader> make_hermes_json_reader();
std::unique_ptr<ToolCallReader> make_deepseek_v3_reader();

// Shared by the formats.

constexpr std::size_t kMaxToolNameBytes = 256;  // of a function or a parameter, as written

enum class Match : std::uint8_t { no, yes, unclear };

// Whether `text` begins with `word`; unclear if `text` is a proper prefix of `word` and more may come.
Match begins_with(std::string_view text, std::string_view word, bool ended);

// Where `tag` stands in `text` or may begin at its end; text.size() if neither. A tag begins with '<' and
// contains no other one, so it is compared once per '<'.
struct TagSearch {
  std::size_t at;
  bool found;
};
TagSearch find_tag(std::string_view text, std::string_view tag, bool ended);

void skip_json_whitespace(std::string_view& text);

// Consumes a name and the `end` after it. A name has 1 to kMaxToolNameBytes bytes and none of '<', '>', '\n'.
Match take_name(std::string_view& text, std::string_view end, bool ended, std::string_view& name);

}  // namespace moeflux
