#pragma once
// Reads the tool calls of one format, from text that arrives in pieces. Internal to reply_parser.cpp.
//
// A reader is a grammar: it takes from the unread text as much as it understands and leaves what may be the
// beginning of something longer, less than 1 KiB. What it has taken is a function of the text, not of how the
// text was cut. States: idle -> begin() -> reading calls -> idle. One thread at a time.

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "text/reply_format.h"
#include "text/tool_schemas.h"

namespace moeflux {

// A call as far as it has been read.
struct ToolCall {
  std::string name;
  std::string arguments;     // JSON; complete when the call is
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
    needs_more,     // all that can be told from the text so far
    call_complete,  // `call` is whole; read on
    section_over,   // the closing tag was read
    malformed,      // what is unread does not fit
  };

  virtual ~ToolCallReader() = default;

  // What comes before a call, or before a section of calls.
  virtual std::string_view opening_tag() const = 0;

  // The opening tag has just been read.
  virtual void begin() = 0;

  // Takes from the front of `unread`. `ended`: no more text will come. A call that lacks nothing but the end
  // of its closing tag is complete then.
  virtual Progress read(std::string_view& unread, bool ended, ToolCall& call) = 0;
};

// Null for ToolFormat::none. `schemas` outlives the reader.
std::unique_ptr<ToolCallReader> make_tool_call_reader(ToolFormat format, const ToolSchemas& schemas);

std::unique_ptr<ToolCallReader> make_qwen_xml_reader(const ToolSchemas& schemas);
std::unique_ptr<ToolCallReader> make_hermes_json_reader();
std::unique_ptr<ToolCallReader> make_deepseek_v3_reader();

// The words of the grammars.

constexpr std::size_t kMaxToolNameBytes = 256;  // of a function or a parameter, as it is written

enum class Match : std::uint8_t { no, yes, unclear };

// Whether `text` begins with `word`; unclear when it is a part of `word` and more may come.
Match begins_with(std::string_view text, std::string_view word, bool ended);

// Where `tag` is in `text`, or may begin at its end, or text.size(). A tag begins with a '<' and has no other
// one, so one look at each '<' finds it.
struct TagSearch {
  std::size_t at;
  bool found;
};
TagSearch find_tag(std::string_view text, std::string_view tag, bool ended);

void skip_json_whitespace(std::string_view& text);

// Takes a name and the `end` after it. A name has 1 to kMaxToolNameBytes bytes and none of '<', '>', '\n'.
Match take_name(std::string_view& text, std::string_view end, bool ended, std::string_view& name);

}  // namespace moeflux
