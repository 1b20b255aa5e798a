#pragma once
// What was said in a chat: messages as chat templates take them, and the ways in which a person edits them.
//
// A file of a conversation is the JSON array of its messages, so that `moeflux run --messages` and others read it.
// States: the last message is a person's or a tool's (awaits_answer), or it is the model's, or there is none.
// One thread at a time.

#include <optional>
#include <string>
#include <string_view>

#include "base/json.h"
#include "base/result.h"

namespace moeflux::cli {

class Conversation {
 public:
  static Result<Conversation> parse(std::string_view json, std::string_view name);
  std::string to_json() const;

  const Json& messages() const { return messages_; }
  bool is_empty() const { return messages_.empty(); }
  // The last message is not the model's.
  bool awaits_answer() const;

  // It is a person's.
  bool ends_with_a_question() const;

  // What the model is told before everything else; empty: nothing. Replaces what it was told before.
  void set_system(std::string_view text);
  std::string system() const;

  void say(std::string_view text);
  void answer(Json message);  // the model's

  // Forgets the last thing that a person said and all that followed. False: nobody has said anything.
  bool undo();
  // Forgets what followed the last thing that a person or a tool said. False: there is nothing to answer.
  bool take_back_answer();
  // All but the system message.
  void clear();

 private:
  Json messages_ = Json::array();
};

}  // namespace moeflux::cli
