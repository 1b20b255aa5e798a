#include "text/template/jinja/operators.h"

#include <fmt/format.h>

#include <cmath>

#include "base/printable.h"
#include "text/template/jinja/builtins/characters.h"
#include "text/template/jinja/builtins/formatting.h"

namespace moeflux::jinja {
namespace {

std::string_view symbol(ArithmeticOperator op) {
  switch (op) {
    case ArithmeticOperator::add: return "+";
    case ArithmeticOperator::subtract: return "-";
    case ArithmeticOperator::multiply: return "*";
    case ArithmeticOperator::divide: return "/";
    case ArithmeticOperator::floor_divide: return "//";
    case ArithmeticOperator::modulo: return "%";
    case ArithmeticOperator::power: return "**";
  }
  return "?";
}

Error overflow(ArithmeticOperator op) {
  return Error(ErrorCode::unsupported, fmt::format("the result of '{}' does not fit in 64 bits", symbol(op)));
}

Error by_zero() { return type_error("division by zero"); }

Result<std::int64_t> integer_power(std::int64_t base, std::int64_t exponent) {
  std::int64_t out = 1;
  while (exponent > 0) {
    if (exponent % 2 != 0 && __builtin_mul_overflow(out, base, &out))
      return overflow(ArithmeticOperator::power);
    exponent /= 2;
    if (exponent > 0 && __builtin_mul_overflow(base, base, &base)) return overflow(ArithmeticOperator::power);
  }
  return out;
}

// Rounds towards minus infinity, as in Python.
Result<std::int64_t> floor_divide(std::int64_t a, std::int64_t b) {
  if (b == 0) return by_zero();
  if (b == -1) {
    std::int64_t out = 0;
    if (__builtin_sub_overflow(std::int64_t{0}, a, &out)) return overflow(ArithmeticOperator::floor_divide);
    return out;
  }
  return a / b - (a % b != 0 && (a % b < 0) != (b < 0) ? 1 : 0);
}

Result<std::int64_t> integers(ArithmeticOperator op, std::int64_t a, std::int64_t b) {
  std::int64_t out = 0;
  bool over = false;
  switch (op) {
    case ArithmeticOperator::add: over = __builtin_add_overflow(a, b, &out); break;
    case ArithmeticOperator::subtract: over = __builtin_sub_overflow(a, b, &out); break;
    case ArithmeticOperator::multiply: over = __builtin_mul_overflow(a, b, &out); break;
    case ArithmeticOperator::floor_divide: return floor_divide(a, b);
    case ArithmeticOperator::modulo: {
      if (b == 0) return by_zero();
      if (b == -1) return 0;
      const std::int64_t rest = a % b;
      return rest != 0 && (rest < 0) != (b < 0) ? rest + b : rest;
    }
    default: return integer_power(a, b);
  }
  if (over) return overflow(op);
  return out;
}

// The remainder with the sign of the divisor.
double python_fmod(double a, double b) {
  const double rest = std::fmod(a, b);
  if (rest == 0) return std::copysign(0.0, b);
  return (rest < 0) != (b < 0) ? rest + b : rest;
}

Result<double> reals(ArithmeticOperator op, double a, double b) {
  switch (op) {
    case ArithmeticOperator::add: return a + b;
    case ArithmeticOperator::subtract: return a - b;
    case ArithmeticOperator::multiply: return a * b;
    case ArithmeticOperator::divide:
      if (b == 0) return by_zero();
      return a / b;
    case ArithmeticOperator::floor_divide: {
      if (b == 0) return by_zero();
      const double quotient = (a - python_fmod(a, b)) / b;
      const double whole = std::floor(quotient);
      return quotient - whole > 0.5 ? whole + 1 : whole;
    }
    case ArithmeticOperator::modulo:
      if (b == 0) return by_zero();
      return python_fmod(a, b);
    case ArithmeticOperator::power: break;
  }
  if (a == 0 && b < 0) return type_error("zero cannot be raised to a negative power");
  if (a < 0 && std::isfinite(a) && std::isfinite(b) && b != std::floor(b))
    return Error(ErrorCode::unsupported, "complex numbers are not supported");
  const double out = std::pow(a, b);
  if (std::isinf(out) && std::isfinite(a) && std::isfinite(b))
    return type_error("the result of '**' is too large");
  return out;
}

Result<Value> numbers(ArithmeticOperator op, const Value& a, const Value& b) {
  const bool data = a.is_data() || b.is_data();
  const bool stays_whole = op != ArithmeticOperator::divide &&
                           !(op == ArithmeticOperator::power && b.is_whole() && b.as_integer() < 0);
  if (a.is_whole() && b.is_whole() && stays_whole) {
    MF_TRY(const std::int64_t out, integers(op, a.as_integer(), b.as_integer()));
    return Value::integer(out, data);
  }
  MF_TRY(const double out, reals(op, a.as_real(), b.as_real()));
  return Value::real(out, data);
}

Result<Value> repeated_string(const MarkedText& what, std::uint64_t count, const Heap& heap) {
  const std::uint64_t size = what.bytes.size();
  if (size == 0 || count == 0) return heap.string("");
  if (count > heap.budget().limits().string_bytes / size) return heap.budget().too_long();
  const bool all_data = what.data.size() == 1 && what.data[0] == TextRange{0, what.bytes.size()};
  if (what.data.empty() || all_data) {  // one piece, doubled until it is long enough
    std::string bytes;
    bytes.reserve(size * count);
    bytes = what.bytes;
    while (bytes.size() < size * count) bytes.append(bytes, 0, size * count - bytes.size());
    return heap.string(all_data ? MarkedText::from_data(bytes) : MarkedText::from_template(bytes));
  }
  TextBuilder out = heap.builder();
  for (std::uint64_t i = 0; i < count && !out.over(); ++i) out.add(what);
  return heap.string(std::move(out));
}

Result<Value> repeated(const Value& what, std::int64_t times, const Heap& heap) {
  const std::uint64_t count = times < 0 ? 0 : static_cast<std::uint64_t>(times);
  if (what.is_string()) return repeated_string(what.text(), count, heap);
  const SequenceObject& sequence = what.sequence();
  const std::uint64_t size = sequence.items.size();
  if (size > 0 && count > heap.budget().limits().string_bytes / (size * sizeof(Value)))
    return heap.budget().too_long();
  std::vector<Value> items;
  items.reserve(size * count);
  for (std::uint64_t i = 0; size > 0 && i < count; ++i)
    items.insert(items.end(), sequence.items.begin(), sequence.items.end());
  return heap.sequence(std::move(items), sequence.kind);
}

bool is_repeatable(const Value& value) {
  return value.is_string() || value.is_sequence(SequenceKind::list) || value.is_sequence(SequenceKind::tuple);
}

Result<Value> joined(const Value& a, const Value& b, const Heap& heap) {
  if (a.is_string()) {
    TextBuilder out = heap.builder();
    out.add(a.text());
    out.add(b.text());
    return heap.string(std::move(out));
  }
  const auto& left = a.sequence().items;
  const auto& right = b.sequence().items;
  MF_TRY_STATUS(heap.budget().room((left.size() + right.size()) * sizeof(Value)));
  std::vector<Value> items = left;
  items.insert(items.end(), right.begin(), right.end());
  return heap.sequence(std::move(items), a.sequence().kind);
}

// The bounds of a slice of `length` elements, resolved as in Python.
struct Resolved {
  std::int64_t begin, end, stride;
};

Result<Resolved> resolve(const SliceBounds& bounds, std::size_t length) {
  const auto size = static_cast<std::int64_t>(length);
  const auto whole = [](const Value& value, std::int64_t otherwise) -> Result<std::int64_t> {
    if (value.is_none()) return otherwise;
    if (value.is_whole()) return value.as_integer();
    if (value.is_undefined()) return undefined_error(value);
    return type_error(fmt::format("the bounds of a slice are whole numbers, not a '{}'", type_name(value)));
  };
  Resolved out{};
  MF_TRY(out.stride, whole(bounds.stride, 1));
  if (out.stride == 0) return type_error("the step of a slice is 0");
  const std::int64_t lowest = out.stride > 0 ? 0 : -1;
  const std::int64_t highest = out.stride > 0 ? size : size - 1;
  const auto clamped = [&](const Value& value, std::int64_t otherwise) -> Result<std::int64_t> {
    if (value.is_none()) return otherwise;
    MF_TRY(std::int64_t at, whole(value, 0));
    if (at < 0) at = at < -size ? lowest : std::max(at + size, lowest);
    return std::min(at, highest);
  };
  MF_TRY(out.begin, clamped(bounds.begin, out.stride > 0 ? lowest : highest));
  MF_TRY(out.end, clamped(bounds.end, out.stride > 0 ? highest : lowest));
  return out;
}

// Calls `take` with each index of the slice.
template <class Take>
Status each_index(const Resolved& range, Take take) {
  for (std::int64_t at = range.begin; range.stride > 0 ? at < range.end : at > range.end;) {
    MF_TRY_STATUS(take(static_cast<std::size_t>(at)));
    if (__builtin_add_overflow(at, range.stride, &at)) break;
  }
  return {};
}

Result<Value> slice_of_string(const Value& object, const Resolved& range, const Heap& heap) {
  const std::string_view bytes = object.bytes();
  TextBuilder out = heap.builder();
  if (range.stride == 1) {
    const auto begin = static_cast<std::size_t>(range.begin);
    const auto end = static_cast<std::size_t>(std::max(range.begin, range.end));
    MF_TRY_STATUS(heap.budget().work(bytes.size()));
    if (object.string().ascii())
      out.add(object.text(), begin, end);
    else
      out.add(object.text(), byte_of_code_point(bytes, begin), byte_of_code_point(bytes, end));
    return heap.string(std::move(out));
  }
  std::vector<std::size_t> starts;  // of the code points
  MF_TRY_STATUS(heap.budget().room(bytes.size() * sizeof(std::size_t) / 4));
  MF_TRY_STATUS(heap.budget().work(bytes.size() * 4));
  for (std::size_t at = 0; at < bytes.size(); at += code_point_at(bytes, at).bytes) starts.push_back(at);
  starts.push_back(bytes.size());
  MF_TRY_STATUS(each_index(range, [&](std::size_t at) -> Status {
    out.add(object.text(), starts[at], starts[at + 1]);
    return {};
  }));
  return heap.string(std::move(out));
}

}  // namespace

Result<Value> arithmetic(ArithmeticOperator op, const Value& a, const Value& b, const Heap& heap) {
  if (a.is_number() && b.is_number()) return numbers(op, a, b);
  if (op == ArithmeticOperator::modulo && a.is_string()) return percent_format(a, b, heap);
  if (a.is_undefined()) return undefined_error(a);
  if (b.is_undefined()) return undefined_error(b);
  if (op == ArithmeticOperator::add && is_repeatable(a) && a.kind() == b.kind() &&
      (a.is_string() || a.sequence().kind == b.sequence().kind)) {
    return joined(a, b, heap);
  }
  if (op == ArithmeticOperator::multiply && is_repeatable(a) && b.is_whole())
    return repeated(a, b.as_integer(), heap);
  if (op == ArithmeticOperator::multiply && is_repeatable(b) && a.is_whole())
    return repeated(b, a.as_integer(), heap);
  return type_error(
      fmt::format("'{}' does not take a '{}' and a '{}'", symbol(op), type_name(a), type_name(b)));
}

Result<Value> negative(const Value& value) {
  if (value.is(Kind::real)) return Value::real(-value.as_real(), value.is_data());
  std::int64_t out = 0;
  if (__builtin_sub_overflow(std::int64_t{0}, value.as_integer(), &out))
    return overflow(ArithmeticOperator::subtract);
  return Value::integer(out, value.is_data());
}

Result<Value> slice_of(const Value& object, const SliceBounds& bounds, const Heap& heap) {
  if (object.is_undefined()) return undefined_error(object);
  const bool sliceable = object.is_string() || object.is_sequence(SequenceKind::list) ||
                         object.is_sequence(SequenceKind::tuple) || object.is_sequence(SequenceKind::range);
  if (!sliceable) return type_error(fmt::format("a '{}' has no slices", type_name(object)));
  MF_TRY(const Resolved range, resolve(bounds, *length_of(object)));
  if (object.is_string()) return slice_of_string(object, range, heap);
  const SequenceObject& sequence = object.sequence();
  std::vector<Value> items;
  MF_TRY_STATUS(each_index(range, [&](std::size_t at) -> Status {
    items.push_back(sequence.items[at]);
    return {};
  }));
  const bool is_range = sequence.kind == SequenceKind::range;
  MF_TRY(Value out, heap.sequence(std::move(items), sequence.kind));
  if (is_range) {
    out.sequence().start = sequence.start + range.begin * sequence.stride;
    out.sequence().stop = sequence.start + range.end * sequence.stride;
    out.sequence().stride = sequence.stride * range.stride;
  }
  out.object()->data = object.is_data();
  return out;
}

Result<std::optional<Value>> element_at(const Value& object, const Value& key, const Heap& heap) {
  if (object.is_dict()) {
    if (key.is_string()) MF_TRY_STATUS(heap.budget().work(key.bytes().size()));
    const Value* found = DictObject::is_key(key) ? object.dict().find(key) : nullptr;
    if (found == nullptr) return std::optional<Value>();
    return std::optional<Value>(*found);
  }
  const bool indexed = object.is_string() || object.is_sequence(SequenceKind::list) ||
                       object.is_sequence(SequenceKind::tuple) || object.is_sequence(SequenceKind::range);
  if (!indexed || !key.is_whole()) return std::optional<Value>();
  const auto size = static_cast<std::int64_t>(*length_of(object));
  std::int64_t at = key.as_integer();
  if (at < 0) at += size;
  if (at < 0 || at >= size) return std::optional<Value>();
  const auto place = static_cast<std::size_t>(at);
  if (object.is_sequence()) return std::optional<Value>(object.sequence().items[place]);
  const std::string_view bytes = object.bytes();
  MF_TRY_STATUS(heap.budget().work(object.string().ascii() ? 1 : bytes.size()));
  const std::size_t begin = object.string().ascii() ? place : byte_of_code_point(bytes, place);
  MF_TRY(Value character,
         heap.string(slice(object.text(), begin, begin + code_point_at(bytes, begin).bytes)));
  return std::optional<Value>(std::move(character));
}

}  // namespace moeflux::jinja
