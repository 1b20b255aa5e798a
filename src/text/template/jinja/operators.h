#pragma once
// Arithmetic, indexing and slicing by Python's rules. One thread at a time.

#include "text/jinja/ast.h"
#include "text/jinja/value.h"

namespace moeflux::jinja {

Result<Value> arithmetic(ArithmeticOperator op, const Value& a, const Value& b, const Heap& heap);
Result<Value> negative(const Value& value);

// The bounds of a slice; an absent one is None.
struct SliceBounds {
  Value begin, end, stride;
};
Result<Value> slice_of(const Value& object, const SliceBounds& bounds, const Heap& heap);

// object[key] for what has elements; absent where there is none, or where `key` is of no use here.
Result<std::optional<Value>> element_at(const Value& object, const Value& key, const Heap& heap);

}  // namespace moeflux::jinja
