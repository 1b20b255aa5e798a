// Equality, order and membership as in Python.

#include <fmt/format.h>
#include <string.h>

#include <algorithm>

#include "text/template/jinja/value.h"

namespace moeflux::jinja {
namespace {

bool is_listlike(const Value& value) {
  return value.is_sequence(SequenceKind::list) || value.is_sequence(SequenceKind::tuple) ||
         value.is_sequence(SequenceKind::range);
}

Result<bool> equal_items(const std::vector<Value>& a, const std::vector<Value>& b, Budget& budget) {
  if (a.size() != b.size()) return false;
  for (std::size_t i = 0; i < a.size(); ++i) {
    MF_TRY(const bool same, equal(a[i], b[i], budget));
    if (!same) return false;
  }
  return true;
}

Result<bool> equal_dicts(const DictObject& a, const DictObject& b, Budget& budget) {
  if (a.entries.size() != b.entries.size()) return false;
  for (const auto& [key, value] : a.entries) {
    const Value* other = b.find(key);
    if (other == nullptr) return false;
    MF_TRY(const bool same, equal(value, *other, budget));
    if (!same) return false;
  }
  return true;
}

// A long double holds every 64-bit integer and every double.
long double exact(const Value& number) {
  return number.is_whole() ? static_cast<long double>(number.as_integer())
                           : static_cast<long double>(number.as_real());
}

}  // namespace

Result<bool> equal(const Value& a, const Value& b, Budget& budget) {
  MF_TRY_STATUS(budget.work(sizeof(Value)));
  if (a.is_number() && b.is_number()) return exact(a) == exact(b);
  if (a.kind() != b.kind()) return false;
  switch (a.kind()) {
    case Kind::undefined:
    case Kind::none: return true;
    case Kind::string:
      MF_TRY_STATUS(budget.work(std::min(a.bytes().size(), b.bytes().size())));
      return a.bytes() == b.bytes();
    case Kind::dict: return equal_dicts(a.dict(), b.dict(), budget);
    case Kind::sequence:
      if (a.object() == b.object()) return true;
      if (!is_listlike(a) || a.sequence().kind != b.sequence().kind) return false;
      return equal_items(a.sequence().items, b.sequence().items, budget);
    default: return a.object() == b.object();
  }
}

Result<std::partial_ordering> order(const Value& a, const Value& b, Budget& budget) {
  MF_TRY_STATUS(budget.work(sizeof(Value)));
  if (a.is_undefined()) return undefined_error(a);
  if (b.is_undefined()) return undefined_error(b);
  if (a.is_number() && b.is_number()) return exact(a) <=> exact(b);
  if (a.is_string() && b.is_string()) {
    MF_TRY_STATUS(budget.work(std::min(a.bytes().size(), b.bytes().size())));
    return std::partial_ordering(a.bytes() <=> b.bytes());  // UTF-8 sorts like its code points
  }
  const bool lists = is_listlike(a) && is_listlike(b) && a.sequence().kind == b.sequence().kind &&
                     a.sequence().kind != SequenceKind::range;
  if (!lists) {
    return type_error(fmt::format("a '{}' and a '{}' have no order", type_name(a), type_name(b)));
  }
  const auto& left = a.sequence().items;
  const auto& right = b.sequence().items;
  for (std::size_t i = 0; i < std::min(left.size(), right.size()); ++i) {
    MF_TRY(const bool same, equal(left[i], right[i], budget));
    if (!same) return order(left[i], right[i], budget);
  }
  return std::partial_ordering(left.size() <=> right.size());
}

Result<bool> contains(const Value& container, const Value& item, Budget& budget) {
  if (container.is_string()) {
    if (!item.is_string()) {
      return type_error(fmt::format("'in' looks for a string in a string, not for a '{}'", type_name(item)));
    }
    MF_TRY_STATUS(budget.work(container.bytes().size() + item.bytes().size()));
    // memmem is linear for every needle.
    return item.bytes().empty() || memmem(container.bytes().data(), container.bytes().size(),
                                          item.bytes().data(), item.bytes().size()) != nullptr;
  }
  if (container.is_dict()) {
    if (item.is_string()) MF_TRY_STATUS(budget.work(item.bytes().size()));
    if (DictObject::is_key(item)) return container.dict().find(item) != nullptr;
    // In Python a hashable item is absent and any other one is an error.
    const bool is_list = item.is_dict() || item.is_sequence(SequenceKind::list);
    if (!is_list) return false;
    return type_error(fmt::format("a '{}' cannot be the key of a dict", type_name(item)));
  }
  if (container.is_undefined()) return false;
  if (!container.is_sequence())
    return type_error(fmt::format("a '{}' contains nothing that 'in' could look for", type_name(container)));
  SequenceObject& sequence = container.sequence();
  for (std::size_t i = sequence.next; i < sequence.items.size(); ++i) {
    if (sequence.kind == SequenceKind::generator) sequence.next = i + 1;
    MF_TRY(const bool same, equal(sequence.items[i], item, budget));
    if (same) return true;
  }
  return false;
}

}  // namespace moeflux::jinja
