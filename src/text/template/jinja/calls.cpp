// Attributes, and calls of macros, functions and loops.

#include <fmt/format.h>

#include <algorithm>

#include "base/printable.h"
#include "text/template/jinja/binding.h"
#include "text/template/jinja/builtins/formatting.h"
#include "text/template/jinja/builtins/methods.h"
#include "text/template/jinja/builtins/strftime.h"
#include "text/template/jinja/evaluation.h"
#include "text/template/jinja/operators.h"

namespace moeflux::jinja {
namespace {

// The name of an object in Jinja's messages.
std::string described(const Value& object) {
  return object.is_none() ? "None" : fmt::format("{} object", type_name(object));
}

// The entries of dict(...) and namespace(...): those of a dict or of pairs, then the named arguments.
Result<std::vector<std::pair<Value, Value>>> dict_entries(std::string_view function,
                                                          const Arguments& arguments, const Heap& heap) {
  std::vector<std::pair<Value, Value>> out;
  if (arguments.positional.size() > 1)
    return type_error(fmt::format("{}() takes at most 1 argument", function));
  if (!arguments.positional.empty()) {
    const Value& from = arguments.positional.front();
    if (from.is_dict()) {
      out = from.dict().entries;
    } else {
      MF_TRY(const std::vector<Value> pairs, elements(from, heap));
      for (const Value& pair : pairs) {
        MF_TRY(std::vector<Value> both, elements(pair, heap));
        if (both.size() != 2) return type_error(fmt::format("{}() expects pairs", function));
        out.emplace_back(std::move(both[0]), std::move(both[1]));
      }
    }
  }
  for (const auto& [name, value] : arguments.named) {
    MF_TRY(Value key, heap.string(name));
    out.emplace_back(std::move(key), value);
  }
  return out;
}

}  // namespace

Result<Value> Evaluation::make_method(const Value& self, std::string_view name) {
  auto object = std::make_shared<CallableObject>();
  object->type = CallableObject::Type::method;
  object->name = name;
  object->self = self;
  object->depth = self.depth() + 1;
  MF_TRY_STATUS(heap_.admit(*object, sizeof(CallableObject)));
  return Value(Kind::callable, std::move(object));
}

// Python's getattr(), or nothing.
Result<std::optional<Value>> Evaluation::python_attribute(const Value& object, std::string_view name) {
  if (object.is(Kind::name_space)) {
    const Value* found = object.name_space().find(name);
    if (found == nullptr) return std::optional<Value>();
    return std::optional<Value>(*found);
  }
  if (object.is(Kind::loop)) return loop_attribute(object, name);
  if (changes_object(object, name)) {
    return std::optional<Value>(Heap::undefined(
        fmt::format("access to attribute '{}' of a '{}' is refused: templates may not change it", name,
                    type_name(object))));
  }
  if (has_method(object, name)) {
    MF_TRY(Value method, make_method(object, name));
    return std::optional<Value>(std::move(method));
  }
  if (object.is_sequence() && object.sequence().is_group && (name == "grouper" || name == "list"))
    return std::optional<Value>(object.sequence().items[name == "list" ? 1 : 0]);
  if (object.is(Kind::callable) && name == "name" && object.callable().type == CallableObject::Type::macro) {
    MF_TRY(Value text, heap_.string(object.callable().name));
    return std::optional<Value>(std::move(text));
  }
  return std::optional<Value>();
}

Result<Value> Evaluation::attribute(const Value& object, std::string_view name) {
  if (object.is_undefined()) return undefined_error(object);
  MF_TRY(std::optional<Value> found, python_attribute(object, name));
  if (found) return *std::move(found);
  if (object.is_dict()) {
    if (const Value* value = object.dict().find(name)) return *value;
  }
  return Heap::undefined(fmt::format("'{}' has no attribute '{}'", described(object), printable(name, 60)));
}

Result<Value> Evaluation::item(const Value& object, const Value& key) {
  if (object.is_undefined()) return undefined_error(object);
  MF_TRY(std::optional<Value> found, element_at(object, key, heap_));
  if (found) return *std::move(found);
  if (key.is_string()) {
    MF_TRY(found, python_attribute(object, key.bytes()));
    if (found) return *std::move(found);
    return Heap::undefined(
        fmt::format("'{}' has no attribute '{}'", described(object), printable(key.bytes(), 60)));
  }
  TextBuilder shown = heap_.builder();
  MF_TRY_STATUS(add_repr(shown, key, budget_));
  return Heap::undefined(
      fmt::format("'{}' has no element {}", described(object), printable(shown.take().bytes, 60)));
}

Result<Value> Evaluation::call(const Value& function, Arguments arguments) {
  if (function.is_undefined()) return undefined_error(function);
  if (function.is(Kind::loop)) return call_loop(function, arguments);
  if (!function.is(Kind::callable))
    return type_error(fmt::format("a '{}' cannot be called", type_name(function)));
  const CallableObject& callable = function.callable();
  switch (callable.type) {
    case CallableObject::Type::macro: return call_macro(callable, std::move(arguments));
    case CallableObject::Type::method: return call_method(*this, callable.self, callable.name, arguments);
    case CallableObject::Type::function: return call_function(callable.name, arguments);
  }
  return type_error("not a function");
}

Result<Value> Evaluation::call_function(std::string_view name, const Arguments& arguments) {
  if (name == "raise_exception") {
    MF_TRY(const Bound bound, bind(name, arguments, {"message"}, 1));
    MF_TRY(const Value message, str(*bound[0], heap_));
    return Error(ErrorCode::invalid_argument,
                 fmt::format("the template says: {}", printable(message.bytes(), 500)));
  }
  if (name == "strftime_now") {
    MF_TRY(const Bound bound, bind(name, arguments, {"format"}, 1));
    MF_TRY(const std::string_view format, text(name, *bound[0]));
    if (!now_)
      return Error(ErrorCode::unsupported, "strftime_now() is not supported here: no time was given");
    MF_TRY(const std::string formatted, format_time(format, *now_));
    return heap_.string(formatted);
  }
  if (name == "range") {
    MF_TRY(const Bound bound, bind(name, arguments, {"start", "stop", "step"}, 1));
    MF_TRY(const std::int64_t first, whole(name, *bound[0]));
    if (!bound[1]) return heap_.range(0, first, 1);
    MF_TRY(const std::int64_t stop, whole(name, *bound[1]));
    MF_TRY(const std::int64_t stride, whole(name, bound[2].value_or(Value::integer(1))));
    return heap_.range(first, stop, stride);
  }
  MF_TRY(auto entries, dict_entries(name, arguments, heap_));
  MF_TRY(Value out, heap_.dict(std::move(entries)));
  if (name == "dict") return out;
  std::vector<std::pair<std::string, Value>> named;
  for (const auto& [key, value] : out.dict().entries) {
    if (!key.is_string()) return type_error("the names in a namespace are strings");
    named.emplace_back(key.bytes(), value);
  }
  return make_namespace(std::move(named));
}

Result<Value> Evaluation::call_macro(const CallableObject& macro, Arguments arguments) {
  if (++calls_ > budget_.limits().depth)
    return Error(ErrorCode::unsupported,
                 fmt::format("macros call each other deeper than {}", budget_.limits().depth));
  const std::shared_ptr<Scope> outer = scope_;
  scope_ = macro.scope;
  MF_TRY(Value out, captured([&]() -> Status {
           hide(macro.macro->hidden);
           MF_TRY_STATUS(bind_macro(*macro.macro, std::move(arguments)));
           MF_TRY_STATUS(execute(macro.macro->body));
           return {};
         }));
  scope_ = outer;
  --calls_;
  return out;
}

Status Evaluation::bind_macro(const Macro& macro, Arguments arguments) {
  const std::vector<std::string>& names = macro.signature.names;
  std::vector<const std::string*> missing;
  const auto take_named = [&](std::string_view name) -> std::optional<Value> {
    const auto found = std::find_if(arguments.named.begin(), arguments.named.end(),
                                    [&](const auto& argument) { return argument.first == name; });
    if (found == arguments.named.end()) return std::nullopt;
    Value out = std::move(found->second);
    arguments.named.erase(found);
    return out;
  };
  bool has_caller = false;
  for (std::size_t i = 0; i < names.size(); ++i) {
    has_caller |= names[i] == "caller";
    std::optional<Value> given;
    if (i < arguments.positional.size())
      given = std::move(arguments.positional[i]);
    else
      given = take_named(names[i]);
    if (given)
      scope_->names.insert_or_assign(names[i], *std::move(given));
    else
      missing.push_back(&names[i]);
  }
  if (macro.uses_caller && !has_caller)
    scope_->names.insert_or_assign("caller",
                                   take_named("caller").value_or(Heap::undefined("no caller is defined")));
  if (macro.uses_kwargs) {
    std::vector<std::pair<Value, Value>> entries;
    for (auto& [name, value] : arguments.named) {
      MF_TRY(Value key, heap_.string(name));
      entries.emplace_back(std::move(key), std::move(value));
    }
    MF_TRY(Value kwargs, heap_.dict(std::move(entries)));
    scope_->names.insert_or_assign("kwargs", std::move(kwargs));
  } else if (!arguments.named.empty()) {
    return type_error(fmt::format("macro '{}' takes no argument '{}'", printable(macro.name, 60),
                                  printable(arguments.named.front().first, 60)));
  }
  if (macro.uses_varargs) {
    const std::size_t own = std::min(names.size(), arguments.positional.size());
    std::vector<Value> more(arguments.positional.begin() + static_cast<std::ptrdiff_t>(own),
                            arguments.positional.end());
    MF_TRY(Value varargs, heap_.sequence(std::move(more), SequenceKind::tuple));
    scope_->names.insert_or_assign("varargs", std::move(varargs));
  } else if (arguments.positional.size() > names.size()) {
    return type_error(
        fmt::format("macro '{}' takes at most {} arguments", printable(macro.name, 60), names.size()));
  }
  const std::size_t first_default = names.size() - macro.signature.defaults.size();
  for (const std::string* name : missing) {
    const auto place = static_cast<std::size_t>(name - names.data());
    Value value = Heap::undefined(fmt::format("parameter '{}' was not provided", printable(*name, 60)));
    if (place >= first_default) {
      MF_TRY(value, evaluate(*macro.signature.defaults[place - first_default]));
    }
    scope_->names.insert_or_assign(*name, std::move(value));
  }
  return {};
}

Result<Value> Evaluation::call_loop(const Value& loop, const Arguments& arguments) {
  const LoopObject& state = loop.loop();
  if (state.statement == nullptr || !state.statement->recursive)
    return type_error("only the loop of a {% for ... recursive %} can be called");
  MF_TRY(const Bound bound, bind("loop", arguments, {"iterable"}, 1));
  if (++calls_ > budget_.limits().depth)
    return Error(ErrorCode::unsupported,
                 fmt::format("a loop calls itself deeper than {}", budget_.limits().depth));
  const std::shared_ptr<Scope> outer = scope_;
  scope_ = state.scope;
  MF_TRY(Value out, captured([&] { return run_loop(*state.statement, *bound[0], state.level + 1); }));
  scope_ = outer;
  --calls_;
  return out;
}

Result<std::optional<Value>> Evaluation::loop_attribute(const Value& loop, std::string_view name) {
  const LoopObject& state = loop.loop();
  const auto at = static_cast<std::int64_t>(state.at);
  const auto size = static_cast<std::int64_t>(state.items.size());
  const auto integer = [](std::int64_t value) { return std::optional<Value>(Value::integer(value)); };
  if (name == "index") return integer(at + 1);
  if (name == "index0") return integer(at);
  if (name == "revindex") return integer(size - at);
  if (name == "revindex0") return integer(size - at - 1);
  if (name == "length") return integer(size);
  if (name == "depth") return integer(state.level + 1);
  if (name == "depth0") return integer(state.level);
  if (name == "first") return std::optional<Value>(Value::boolean(at == 0));
  if (name == "last") return std::optional<Value>(Value::boolean(at + 1 == size));
  if (name == "previtem") {
    if (state.at == 0) return std::optional<Value>(Heap::undefined("there is no previous item"));
    return std::optional<Value>(state.items[state.at - 1]);
  }
  if (name == "nextitem") {
    if (at + 1 >= size) return std::optional<Value>(Heap::undefined("there is no next item"));
    return std::optional<Value>(state.items[state.at + 1]);
  }
  if (name != "cycle" && name != "changed") return std::optional<Value>();
  if (name == "changed" && (loops_.empty() || loops_.back() != loop.object())) {
    MF_TRY_STATUS(budget_.take(sizeof(LoopObject)));
    loops_.push_back(loop.object());  // it stores values, which may refer to it
  }
  MF_TRY(Value method, make_method(loop, name));
  return std::optional<Value>(std::move(method));
}

}  // namespace moeflux::jinja
