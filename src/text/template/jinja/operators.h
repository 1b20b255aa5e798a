#pragma once
// Arithmetic, indexing and slicing as in Python. One thread at a time.

#include "text/template/jinja/syntax/ast.h"
#include "text/template/jinja/value.h"

namespace moeflux::jinja {

Result<Value> arithmetic(ArithmeticOperator op, const Value& a, const Value& b, const Heap& heap);
Result<Value> negative(const Value& value);

// The bounds of a slice; None if absent.
struct SliceBounds {
  Value begin, end, stride;
};
Result<Value> slice_of(const Value& object, const SliceBounds& bounds, const Heap& heap);

// object[key] if `object` has such an element; absent otherwise, and if `key` cannot be a key of it.
Result<std::optional<Value>> element_at(const Value& object, const Value& key, const Heap& heap);

}  // namespace moeflux::jinja
