#pragma once
// The messages of a chat, in the form that chat templates take, and the edits that a user makes.
//
// A conversation's file is the JSON array of its messages, so `moeflux run --messages` and other programs can
// read it. States: the last message is from the user or a tool (awaits_answer), or from the model, or there
// is none. One thread at a time.

#include <optional>
#include <string>
#include <string_view>

#include "base/json/json.h"
#include "base/result.h"

namespace moeflux::cli {

class Conversation {
 public:
  static Result<Conversation> parse(std::string_view json, std::string_view name);
  std::string to_json() const;

  const Json& messages() const { return messages_; }
  bool is_empty() const { return messages_.empty(); }
  // True if the last message is from the user or a tool.
  bool awaits_answer() const;

  // True if the last message is from the user.
  bool ends_with_a_question() const;

  // Replaces the system message; empty: removes it.
  void set_system(std::string_view text);
  std::string system() const;

  void say(std::string_view text);
  void answer(Json message);  // a message of the model

  // Removes the last message of the user and all later ones. False if there is none.
  bool undo();
  // Removes the answer after the last message of the user or a tool. False if there is nothing to answer.
  bool take_back_answer();
  // Removes everything except the system message.
  void clear();

 private:
  Json messages_ = Json::array();
};

}  // namespace moeflux::cli
