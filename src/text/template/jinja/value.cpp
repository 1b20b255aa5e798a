#include "text/template/jinja/value.h"

#include <fmt/format.h>

#include <cmath>

#include "base/printable.h"
#include "text/template/jinja/builtins/callable.h"
#include "text/template/jinja/builtins/characters.h"

namespace moeflux::jinja {
namespace {

constexpr std::size_t kIndexedFrom = 9;          // linear search is faster for fewer entries
constexpr std::int64_t kLongestRange = 100'000;  // as in Jinja's sandbox

}  // namespace

Value Value::boolean(bool value, bool data) {
  Value out;
  out.kind_ = Kind::boolean;
  out.scalar_.integer = value ? 1 : 0;
  out.data_ = data;
  return out;
}

Value Value::integer(std::int64_t value, bool data) {
  Value out;
  out.kind_ = Kind::integer;
  out.scalar_.integer = value;
  out.data_ = data;
  return out;
}

Value Value::real(double value, bool data) {
  Value out;
  out.kind_ = Kind::real;
  out.scalar_.real = value;
  out.data_ = data;
  return out;
}

bool Value::is_sequence(SequenceKind kind) const { return is_sequence() && sequence().kind == kind; }

const StringObject& Value::string() const { return static_cast<const StringObject&>(*object_); }
const MarkedText& Value::text() const { return string().text; }
std::string_view Value::bytes() const { return string().text.bytes; }
SequenceObject& Value::sequence() const { return static_cast<SequenceObject&>(*object_); }
const DictObject& Value::dict() const { return static_cast<const DictObject&>(*object_); }
NamespaceObject& Value::name_space() const { return static_cast<NamespaceObject&>(*object_); }
LoopObject& Value::loop() const { return static_cast<LoopObject&>(*object_); }
const CallableObject& Value::callable() const { return static_cast<const CallableObject&>(*object_); }
const std::string& Value::undefined_why() const { return static_cast<const UndefinedObject&>(*object_).why; }

bool Value::same(const Value& other) const {
  if (kind_ != other.kind_) return false;
  if (is_string()) return bytes() == other.bytes();
  if (object_ != nullptr) return object_ == other.object_;
  if (kind_ == Kind::real) return scalar_.real == other.scalar_.real;
  return scalar_.integer == other.scalar_.integer;
}

bool KeyLess::operator()(const Value& a, const Value& b) const {
  const auto group = [](const Value& key) { return key.is_none() ? 0 : key.is_string() ? 2 : 1; };
  if (group(a) != group(b)) return group(a) < group(b);
  if (a.is_string()) return a.bytes() < b.bytes();
  if (a.is_none()) return false;
  if (a.is_whole() && b.is_whole()) return a.as_integer() < b.as_integer();
  // NaN sorts first and is one key.
  if (std::isnan(a.as_real()) || std::isnan(b.as_real()))
    return std::isnan(a.as_real()) && !std::isnan(b.as_real());
  const auto exact = [](const Value& key) {  // a long double holds every 64-bit integer and every double
    return key.is_whole() ? static_cast<long double>(key.as_integer())
                          : static_cast<long double>(key.as_real());
  };
  return exact(a) < exact(b);
}

std::optional<std::size_t> DictObject::place_of(const Value& key) const {
  if (!index.empty()) {
    const auto found = index.find(key);
    return found == index.end() ? std::nullopt : std::optional(found->second);
  }
  for (std::size_t i = 0; i < entries.size(); ++i)
    if (!KeyLess()(entries[i].first, key) && !KeyLess()(key, entries[i].first)) return i;
  return std::nullopt;
}

const Value* DictObject::find(const Value& key) const {
  const auto place = place_of(key);
  return place ? &entries[*place].second : nullptr;
}

const Value* DictObject::find(std::string_view key) const {
  if (!index.empty()) return find(constant_string(std::string(key)));
  for (const auto& [name, value] : entries)
    if (name.is_string() && name.bytes() == key) return &value;
  return nullptr;
}

void DictObject::put(Value key, Value value) {
  if (const auto place = place_of(key)) {
    entries[*place].second = std::move(value);
    return;
  }
  entries.emplace_back(std::move(key), std::move(value));
  if (!index.empty()) {
    index.emplace(entries.back().first, entries.size() - 1);
  } else if (entries.size() == kIndexedFrom) {
    for (std::size_t i = 0; i < entries.size(); ++i) index.emplace(entries[i].first, i);
  }
}

const Value* NamespaceObject::find(std::string_view name) const {
  for (const auto& [key, value] : entries)
    if (key == name) return &value;
  return nullptr;
}

Status Heap::admit(Object& object, std::size_t bytes) const {
  // Data itself nests up to 64 deep, and templates put it into lists of their own.
  if (object.depth > 2 * budget_.limits().depth)
    return Error(ErrorCode::unsupported,
                 fmt::format("a value nests deeper than {}", 2 * budget_.limits().depth));
  MF_TRY_STATUS(budget_.take(bytes));
  object.charge = Charge(budget_, bytes);
  return {};
}

Result<Value> Heap::string(MarkedText text) const {
  MF_TRY_STATUS(budget_.room(text.bytes.size()));
  MF_TRY_STATUS(budget_.work(text.bytes.size()));
  auto object = std::make_shared<StringObject>();
  MF_TRY_STATUS(
      admit(*object, sizeof(StringObject) + text.bytes.size() + text.data.size() * sizeof(TextRange)));
  object->text = std::move(text);
  object->length = count_code_points(object->text.bytes);
  return Value(Kind::string, std::move(object));
}

Result<Value> Heap::string(TextBuilder builder) const {
  if (builder.over()) return budget_.too_long();
  return string(builder.take());
}

Result<Value> Heap::sequence(std::vector<Value> items, SequenceKind kind) const {
  const std::size_t bytes = sizeof(SequenceObject) + items.size() * sizeof(Value);
  MF_TRY_STATUS(budget_.room(bytes));
  MF_TRY_STATUS(budget_.work(bytes));
  auto object = std::make_shared<SequenceObject>();
  object->kind = kind;
  for (const Value& item : items) object->depth = std::max(object->depth, item.depth());
  ++object->depth;
  object->items = std::move(items);
  MF_TRY_STATUS(admit(*object, bytes));
  return Value(Kind::sequence, std::move(object));
}

Result<Value> Heap::dict(const std::vector<std::pair<Value, Value>>& entries) const {
  const std::size_t bytes = sizeof(DictObject) + entries.size() * 4 * sizeof(Value);
  MF_TRY_STATUS(budget_.room(bytes));
  MF_TRY_STATUS(budget_.work(bytes));
  auto object = std::make_shared<DictObject>();
  MF_TRY_STATUS(admit(*object, bytes));
  object->entries.reserve(entries.size());
  for (const auto& [key, value] : entries) {
    if (!DictObject::is_key(key)) {
      if (key.is_sequence(SequenceKind::tuple))
        return Error(ErrorCode::unsupported, "a tuple as the key of a dict is not supported");
      return type_error(fmt::format("a {} cannot be the key of a dict", type_name(key)));
    }
    object->depth = std::max(object->depth, value.depth());
    object->put(key, value);
  }
  if (++object->depth > 2 * budget_.limits().depth)
    return Error(ErrorCode::unsupported,
                 fmt::format("a value nests deeper than {}", 2 * budget_.limits().depth));
  return Value(Kind::dict, std::move(object));
}

Result<Value> Heap::range(std::int64_t start, std::int64_t stop, std::int64_t stride) const {
  if (stride == 0) return type_error("the step of a range is 0");
  std::vector<Value> items;
  for (std::int64_t at = start; stride > 0 ? at < stop : at > stop;) {
    if (std::ssize(items) == kLongestRange)
      return Error(ErrorCode::unsupported, fmt::format("a range of more than {} numbers", kLongestRange));
    items.push_back(Value::integer(at));
    if (__builtin_add_overflow(at, stride, &at)) break;
  }
  MF_TRY(Value out, sequence(std::move(items), SequenceKind::range));
  out.sequence().start = start;
  out.sequence().stop = stop;
  out.sequence().stride = stride;
  return out;
}

Value Heap::undefined(std::string why) {
  auto object = std::make_shared<UndefinedObject>();
  object->why = std::move(why);
  return Value(Kind::undefined, std::move(object));
}

Result<Value> Heap::value(const Json& json, bool is_data) const { return value_inside(json, is_data, 0); }

Result<Value> Heap::value_inside(const Json& json, bool is_data, std::uint32_t depth) const {
  if (depth > JsonLimits().depth)
    return Error(ErrorCode::unsupported, fmt::format("data nests deeper than {}", JsonLimits().depth));
  const auto text = [&](const std::string& bytes) -> Result<Value> {
    if (!is_valid_utf8(bytes)) return Error(ErrorCode::invalid_argument, "a string of the data is not UTF-8");
    return string(is_data ? MarkedText::from_data(bytes) : MarkedText::from_template(bytes));
  };
  if (json.is_null()) return Value().set_data(is_data);
  if (json.is_boolean()) return Value::boolean(*json.get_ptr<const bool*>(), is_data);
  if (json.is_number_unsigned()) {
    const std::uint64_t number = *json.get_ptr<const std::uint64_t*>();
    if (number <= INT64_MAX) return Value::integer(static_cast<std::int64_t>(number), is_data);
    return Value::real(static_cast<double>(number), is_data);  // as parse_json() does beyond 64 bits
  }
  if (json.is_number_integer()) return Value::integer(*json.get_ptr<const std::int64_t*>(), is_data);
  if (json.is_number_float()) return Value::real(*json.get_ptr<const double*>(), is_data);
  if (json.is_string()) return text(*json.get_ptr<const std::string*>());
  Value out;
  if (json.is_array()) {
    std::vector<Value> items;
    items.reserve(json.size());
    for (const Json& element : json) {
      MF_TRY(Value item, value_inside(element, is_data, depth + 1));
      items.push_back(std::move(item));
    }
    MF_TRY(out, sequence(std::move(items)));
  } else if (json.is_object()) {
    std::vector<std::pair<Value, Value>> entries;
    entries.reserve(json.size());
    for (auto member = json.begin(); member != json.end(); ++member) {
      MF_TRY(Value key, text(member.key()));
      MF_TRY(Value value, value_inside(*member, is_data, depth + 1));
      entries.emplace_back(std::move(key), std::move(value));
    }
    MF_TRY(out, dict(std::move(entries)));
  } else {
    return Error(ErrorCode::invalid_argument, "binary data is not JSON");
  }
  out.object()->data = is_data;
  return out;
}

Value constant_string(std::string text) {
  auto object = std::make_shared<StringObject>();
  object->length = count_code_points(text);
  object->text.bytes = std::move(text);
  return Value(Kind::string, std::move(object));
}

bool truth(const Value& value) {
  switch (value.kind()) {
    case Kind::undefined:
    case Kind::none: return false;
    case Kind::boolean:
    case Kind::integer: return value.as_integer() != 0;
    case Kind::real: return value.as_real() != 0;
    case Kind::string: return !value.bytes().empty();
    case Kind::sequence:
      return value.sequence().kind == SequenceKind::generator || !value.sequence().items.empty();
    case Kind::dict: return !value.dict().entries.empty();
    case Kind::name_space:
    case Kind::loop:
    case Kind::callable: return true;
  }
  return false;
}

std::string_view type_name(const Value& value) {
  switch (value.kind()) {
    case Kind::undefined: return "Undefined";
    case Kind::none: return "NoneType";
    case Kind::boolean: return "bool";
    case Kind::integer: return "int";
    case Kind::real: return "float";
    case Kind::string: return "str";
    case Kind::dict: return "dict";
    case Kind::name_space: return "Namespace";
    case Kind::loop: return "LoopContext";
    case Kind::callable: return "function";
    case Kind::sequence: break;
  }
  switch (value.sequence().kind) {
    case SequenceKind::list: return "list";
    case SequenceKind::tuple: return "tuple";
    case SequenceKind::range: return "range";
    case SequenceKind::generator: return "generator";
    case SequenceKind::keys: return "dict_keys";
    case SequenceKind::values: return "dict_values";
    case SequenceKind::items: return "dict_items";
  }
  return "object";
}

Error type_error(std::string message) { return Error(ErrorCode::corrupt_data, std::move(message)); }

Error undefined_error(const Value& undefined) { return type_error(undefined.undefined_why()); }

bool is_iterable(const Value& value) {
  return value.is_undefined() || value.is_string() || value.is_sequence() || value.is_dict() ||
         value.is(Kind::loop);
}

std::optional<std::size_t> length_of(const Value& value) {
  switch (value.kind()) {
    case Kind::undefined: return 0;
    case Kind::string: return value.string().length;
    case Kind::dict: return value.dict().entries.size();
    case Kind::loop: return value.loop().items.size();
    case Kind::sequence:
      if (value.sequence().kind == SequenceKind::generator) return std::nullopt;
      return value.sequence().items.size();
    default: return std::nullopt;
  }
}

Result<std::vector<Value>> elements(const Value& value, const Heap& heap) {
  std::vector<Value> out;
  const auto size = length_of(value).value_or(0);
  MF_TRY_STATUS(heap.budget().room(size * sizeof(Value)));
  MF_TRY_STATUS(heap.budget().work(size * sizeof(Value)));
  if (value.is_sequence()) {
    SequenceObject& sequence = value.sequence();
    if (sequence.kind != SequenceKind::generator) return sequence.items;
    out.assign(sequence.items.begin() + static_cast<std::ptrdiff_t>(sequence.next), sequence.items.end());
    sequence.next = sequence.items.size();
    return out;
  }
  if (value.is_dict()) {
    for (const auto& entry : value.dict().entries) out.push_back(entry.first);
    return out;
  }
  if (value.is_string()) {
    const std::string_view bytes = value.bytes();
    for (std::size_t at = 0; at < bytes.size();) {
      const std::size_t end = at + code_point_at(bytes, at).bytes;
      MF_TRY(Value character, heap.string(slice(value.text(), at, end)));
      out.push_back(std::move(character));
      at = end;
    }
    return out;
  }
  if (value.is_undefined()) return out;
  return type_error(fmt::format("'{}' object is not iterable", type_name(value)));
}

}  // namespace moeflux::jinja
