#include "text/template/jinja/builtins/methods.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/printable.h"
#include "text/template/jinja/binding.h"
#include "text/template/jinja/evaluation.h"

namespace moeflux::jinja {
namespace {

template <std::size_t N>
bool among(const std::string_view (&names)[N], std::string_view name) {
  return std::find(std::begin(names), std::end(names), name) != std::end(names);
}

constexpr std::string_view kDictMethods[] = {"get", "items", "keys", "values", "copy"};
constexpr std::string_view kDictChanges[] = {"clear", "pop", "popitem", "setdefault", "update"};
constexpr std::string_view kListMethods[] = {"index", "count", "copy"};
constexpr std::string_view kListChanges[] = {"append", "reverse", "insert", "sort",
                                             "extend", "remove",  "pop",    "clear"};

bool is_list(const Value& value) { return value.is_sequence(SequenceKind::list); }
bool is_tuple(const Value& value) { return value.is_sequence(SequenceKind::tuple); }

Result<Value> dict_view(const Value& self, SequenceKind kind, const Heap& heap) {
  std::vector<Value> items;
  for (const auto& [key, value] : self.dict().entries) {
    if (kind == SequenceKind::items) {
      MF_TRY(Value pair, heap.sequence({key, value}, SequenceKind::tuple));
      pair.object()->data = self.is_data();
      items.push_back(std::move(pair));
    } else {
      items.push_back(kind == SequenceKind::keys ? key : value);
    }
  }
  MF_TRY(Value out, heap.sequence(std::move(items), kind));
  out.object()->data = self.is_data();
  return out;
}

Result<Value> call_dict_method(Evaluation& evaluation, const Value& self, std::string_view name,
                               const Arguments& arguments) {
  if (name == "get") {
    MF_TRY(const Bound bound, bind(name, arguments, {"key", "default"}, 1));
    MF_TRY(const bool is_there, contains(self, *bound[0], evaluation.budget()));
    if (is_there) return *self.dict().find(*bound[0]);
    return bound[1].value_or(Value());
  }
  MF_TRY_STATUS(bind(name, arguments, {}));
  if (name == "copy") return self;
  const auto kind = name == "items"  ? SequenceKind::items
                    : name == "keys" ? SequenceKind::keys
                                     : SequenceKind::values;
  return dict_view(self, kind, evaluation.heap());
}

Result<Value> call_list_method(Evaluation& evaluation, const Value& self, std::string_view name,
                               const Arguments& arguments) {
  if (name == "copy") return self;
  MF_TRY(const Bound bound, bind(name, arguments, {"value"}, 1));
  std::int64_t count = 0;
  std::int64_t at = 0;
  for (const Value& item : self.sequence().items) {
    MF_TRY(const bool same, equal(item, *bound[0], evaluation.budget()));
    if (same && name == "index") return Value::integer(at);
    count += same ? 1 : 0;
    ++at;
  }
  if (name == "index") return type_error("index(): the value is not in the list");
  return Value::integer(count);
}

Result<Value> call_loop_method(Evaluation& evaluation, const Value& self, std::string_view name,
                               const Arguments& arguments) {
  LoopObject& loop = self.loop();
  if (!arguments.named.empty()) return type_error(fmt::format("{}() takes no named arguments", name));
  if (name == "cycle") {
    if (arguments.positional.empty()) return type_error("cycle() needs at least one argument");
    return arguments.positional[loop.at % arguments.positional.size()];
  }
  bool same = loop.changed_before && loop.last_changed.size() == arguments.positional.size();
  for (std::size_t i = 0; same && i < arguments.positional.size(); ++i) {
    MF_TRY(same, equal(loop.last_changed[i], arguments.positional[i], evaluation.budget()));
  }
  loop.changed_before = true;
  loop.last_changed = arguments.positional;
  return Value::boolean(!same);
}

}  // namespace

bool has_method(const Value& self, std::string_view name) {
  if (self.is_string()) return find_string_method(name) != nullptr || find_case_method(name) != nullptr;
  if (self.is_dict()) return among(kDictMethods, name);
  if (is_list(self)) return among(kListMethods, name);
  const bool is_fixed = is_tuple(self) || self.is_sequence(SequenceKind::range);
  return is_fixed && (name == "index" || name == "count");
}

bool changes_object(const Value& self, std::string_view name) {
  return (self.is_dict() && among(kDictChanges, name)) || (is_list(self) && among(kListChanges, name));
}

Result<Value> call_method(Evaluation& evaluation, const Value& self, std::string_view name,
                          const Arguments& arguments) {
  if (self.is_string()) {
    if (const StringMethod method = find_string_method(name)) return method(evaluation, self, arguments);
    if (const StringMethod method = find_case_method(name)) return method(evaluation, self, arguments);
  }
  if (self.is_dict()) return call_dict_method(evaluation, self, name, arguments);
  if (self.is(Kind::loop)) return call_loop_method(evaluation, self, name, arguments);
  if (self.is_sequence()) return call_list_method(evaluation, self, name, arguments);
  return type_error(fmt::format("a '{}' has no method '{}'", type_name(self), printable(name, 60)));
}

}  // namespace moeflux::jinja
