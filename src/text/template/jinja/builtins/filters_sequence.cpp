// Filters over the elements of a value.

#include <fmt/format.h>

#include <algorithm>
#include <set>

#include "text/template/jinja/binding.h"
#include "text/template/jinja/builtins/characters.h"
#include "text/template/jinja/builtins/filters.h"
#include "text/template/jinja/builtins/formatting.h"
#include "text/template/jinja/evaluation.h"
#include "text/template/jinja/operators.h"

namespace moeflux::jinja {
namespace {

Result<Value> length_filter(Evaluation&, const Value& input, const Arguments& arguments) {
  MF_TRY_STATUS(bind("length", arguments, {}));
  const auto length = length_of(input);
  if (!length) return type_error(fmt::format("a '{}' has no length", type_name(input)));
  return Value::integer(static_cast<std::int64_t>(*length));
}

Result<Value> default_filter(Evaluation& evaluation, const Value& input, const Arguments& arguments) {
  MF_TRY(const Bound bound, bind("default", arguments, {"default_value", "boolean"}));
  MF_TRY(const Value empty, evaluation.heap().string(""));
  const bool takes = input.is_undefined() || (truth_or(bound[1], false) && !truth(input));
  return takes ? bound[0].value_or(empty) : input;
}

Result<Value> list_filter(Evaluation& evaluation, const Value& input, const Arguments& arguments) {
  MF_TRY_STATUS(bind("list", arguments, {}));
  MF_TRY(std::vector<Value> items, elements(input, evaluation.heap()));
  MF_TRY(Value out, evaluation.heap().sequence(std::move(items)));
  out.object()->data = !input.is_string() && input.is_data();
  return out;
}

Result<Value> join_filter(Evaluation& evaluation, const Value& input, const Arguments& arguments) {
  MF_TRY(const Bound bound, bind("join", arguments, {"d", "attribute"}));
  const Heap& heap = evaluation.heap();
  MF_TRY(const Value empty, heap.string(""));
  MF_TRY(const Value separator, str(bound[0].value_or(empty), heap));
  MF_TRY(const std::vector<Value> items, elements(input, heap));
  TextBuilder out = heap.builder();
  for (std::size_t i = 0; i < items.size(); ++i) {
    MF_TRY_STATUS(evaluation.budget().work(separator.bytes().size()));
    if (i > 0) out.add(separator.text());
    MF_TRY(const Value item, by_path(evaluation, items[i], bound[1].value_or(Value())));
    MF_TRY_STATUS(add_str(out, item, heap.budget()));
  }
  return heap.string(std::move(out));
}

Result<Value> items_filter(Evaluation& evaluation, const Value& input, const Arguments& arguments) {
  MF_TRY_STATUS(bind("items", arguments, {}));
  std::vector<Value> pairs;
  if (input.is_dict()) {
    for (const auto& [key, value] : input.dict().entries) {
      MF_TRY(Value pair, evaluation.heap().sequence({key, value}, SequenceKind::tuple));
      pair.object()->data = input.is_data();
      pairs.push_back(std::move(pair));
    }
  } else if (!input.is_undefined()) {
    return type_error(fmt::format("items() expects a dict, not a '{}'", type_name(input)));
  }
  return evaluation.heap().sequence(std::move(pairs), SequenceKind::generator);
}

Result<Value> dictsort_filter(Evaluation& evaluation, const Value& input, const Arguments& arguments) {
  MF_TRY(const Bound bound, bind("dictsort", arguments, {"case_sensitive", "by", "reverse"}));
  std::string_view by = "key";
  if (bound[1]) {
    MF_TRY(by, text("dictsort", *bound[1]));
  }
  if (by != "key" && by != "value") return type_error("dictsort() sorts by 'key' or by 'value'");
  if (input.is_undefined()) return undefined_error(input);
  if (!input.is_dict())
    return type_error(fmt::format("dictsort() expects a dict, not a '{}'", type_name(input)));
  const bool ignore_case = !truth_or(bound[0], false);
  std::vector<std::pair<Value, Value>> keyed;
  for (const auto& [key, value] : input.dict().entries) {
    MF_TRY(Value sort_key, folded(evaluation, by == "key" ? key : value, ignore_case));
    MF_TRY(Value pair, evaluation.heap().sequence({key, value}, SequenceKind::tuple));
    pair.object()->data = input.is_data();
    keyed.emplace_back(std::move(sort_key), std::move(pair));
  }
  MF_TRY_STATUS(sort_by_keys(evaluation, keyed, truth_or(bound[2], false)));
  std::vector<Value> out;
  for (auto& [key, pair] : keyed) out.push_back(std::move(pair));
  return evaluation.heap().sequence(std::move(out));
}

// The sort key of an element: one path, or several separated by commas.
Result<Value> sort_key(Evaluation& evaluation, const Value& item, const Value& attribute, bool ignore_case) {
  const bool several = attribute.is_string() && attribute.bytes().find(',') != std::string_view::npos;
  if (!several) {
    MF_TRY(const Value key, by_path(evaluation, item, attribute));
    return folded(evaluation, key, ignore_case);
  }
  std::vector<Value> keys;
  std::string_view rest = attribute.bytes();
  for (bool more = true; more;) {
    const std::size_t comma = rest.find(',');
    more = comma != std::string_view::npos;
    MF_TRY(const Value path, evaluation.heap().string(rest.substr(0, comma)));
    MF_TRY(const Value key, by_path(evaluation, item, path));
    MF_TRY(Value one, folded(evaluation, key, ignore_case));
    keys.push_back(std::move(one));
    if (more) rest.remove_prefix(comma + 1);
  }
  return evaluation.heap().sequence(std::move(keys));
}

Result<Value> sort_filter(Evaluation& evaluation, const Value& input, const Arguments& arguments) {
  MF_TRY(const Bound bound, bind("sort", arguments, {"reverse", "case_sensitive", "attribute"}));
  MF_TRY(const std::vector<Value> items, elements(input, evaluation.heap()));
  std::vector<std::pair<Value, Value>> keyed;
  for (const Value& item : items) {
    MF_TRY(Value key, sort_key(evaluation, item, bound[2].value_or(Value()), !truth_or(bound[1], false)));
    keyed.emplace_back(std::move(key), item);
  }
  MF_TRY_STATUS(sort_by_keys(evaluation, keyed, truth_or(bound[0], false)));
  std::vector<Value> out;
  for (auto& [key, item] : keyed) out.push_back(std::move(item));
  return evaluation.heap().sequence(std::move(out));
}

Result<Value> unique_filter(Evaluation& evaluation, const Value& input, const Arguments& arguments) {
  MF_TRY(const Bound bound, bind("unique", arguments, {"case_sensitive", "attribute"}));
  MF_TRY(const std::vector<Value> items, elements(input, evaluation.heap()));
  std::set<Value, KeyLess> seen;
  std::vector<Value> out;
  for (const Value& item : items) {
    MF_TRY(const Value value, by_path(evaluation, item, bound[1].value_or(Value())));
    MF_TRY(Value key, folded(evaluation, value, !truth_or(bound[0], false)));
    if (key.is_undefined()) key = Value();  // undefined values are equal, like None
    if (!DictObject::is_key(key))
      return type_error(fmt::format("unique() cannot compare a '{}'", type_name(key)));
    if (seen.insert(key).second) out.push_back(item);
  }
  return evaluation.heap().sequence(std::move(out), SequenceKind::generator);
}

Result<Value> first_filter(Evaluation& evaluation, const Value& input, const Arguments& arguments) {
  MF_TRY_STATUS(bind("first", arguments, {}));
  if (input.is_sequence()) {
    SequenceObject& sequence = input.sequence();
    const std::size_t at = sequence.next;
    if (at >= sequence.items.size()) return Heap::undefined("there is no first item, the sequence is empty");
    if (sequence.kind == SequenceKind::generator) ++sequence.next;
    return sequence.items[at];
  }
  if (input.is_string()) {
    MF_TRY(std::optional<Value> found, element_at(input, Value::integer(0), evaluation.heap()));
    if (found) return *std::move(found);
  }
  MF_TRY(const std::vector<Value> items, elements(input, evaluation.heap()));
  return items.empty() ? Heap::undefined("there is no first item, the sequence is empty") : items.front();
}

Result<Value> last_filter(Evaluation& evaluation, const Value& input, const Arguments& arguments) {
  MF_TRY_STATUS(bind("last", arguments, {}));
  if (input.is_sequence(SequenceKind::generator))
    return type_error("a generator has no last item before it is a list");
  if (input.is_string()) {
    MF_TRY(std::optional<Value> found, element_at(input, Value::integer(-1), evaluation.heap()));
    if (found) return *std::move(found);
  }
  MF_TRY(const std::vector<Value> items, elements(input, evaluation.heap()));
  return items.empty() ? Heap::undefined("there is no last item, the sequence is empty") : items.back();
}

Result<Value> sum_filter(Evaluation& evaluation, const Value& input, const Arguments& arguments) {
  MF_TRY(const Bound bound, bind("sum", arguments, {"attribute", "start"}));
  MF_TRY(const std::vector<Value> items, elements(input, evaluation.heap()));
  Value out = bound[1].value_or(Value::integer(0));
  if (out.is_string()) return type_error("sum() does not add strings");
  for (const Value& item : items) {
    MF_TRY(const Value value, by_path(evaluation, item, bound[0].value_or(Value())));
    MF_TRY(out, arithmetic(ArithmeticOperator::add, out, value, evaluation.heap()));
  }
  return out;
}

template <bool greatest>
Result<Value> extreme_filter(Evaluation& evaluation, const Value& input, const Arguments& arguments) {
  MF_TRY(const Bound bound, bind("min", arguments, {"case_sensitive", "attribute"}));
  MF_TRY(const std::vector<Value> items, elements(input, evaluation.heap()));
  if (items.empty()) return Heap::undefined("there is no such item, the sequence is empty");
  const auto key_of = [&](const Value& item) -> Result<Value> {
    MF_TRY(const Value key, by_path(evaluation, item, bound[1].value_or(Value())));
    return folded(evaluation, key, !truth_or(bound[0], false));
  };
  std::size_t best = 0;
  MF_TRY(Value best_key, key_of(items[0]));
  for (std::size_t i = 1; i < items.size(); ++i) {
    MF_TRY(Value key, key_of(items[i]));
    MF_TRY(const std::partial_ordering ordering, order(key, best_key, evaluation.budget()));
    if (greatest ? ordering > 0 : ordering < 0) {
      best = i;
      best_key = std::move(key);
    }
  }
  return items[best];
}

Result<Value> reverse_filter(Evaluation& evaluation, const Value& input, const Arguments& arguments) {
  MF_TRY_STATUS(bind("reverse", arguments, {}));
  if (input.is_string()) return slice_of(input, {Value(), Value(), Value::integer(-1)}, evaluation.heap());
  MF_TRY(std::vector<Value> items, elements(input, evaluation.heap()));
  std::reverse(items.begin(), items.end());
  const bool was_generator = input.is_sequence(SequenceKind::generator);
  return evaluation.heap().sequence(std::move(items),
                                    was_generator ? SequenceKind::list : SequenceKind::generator);
}

Result<Value> batch_filter(Evaluation& evaluation, const Value& input, const Arguments& arguments) {
  MF_TRY(const Bound bound, bind("batch", arguments, {"linecount", "fill_with"}, 1));
  MF_TRY(const std::int64_t count, whole("batch", *bound[0]));
  MF_TRY(const std::vector<Value> items, elements(input, evaluation.heap()));
  const Value fill = bound[1].value_or(Value());
  std::vector<Value> out;
  std::vector<Value> line;
  const auto finish = [&]() -> Status {
    MF_TRY(Value batch, evaluation.heap().sequence(std::exchange(line, {})));
    out.push_back(std::move(batch));
    return {};
  };
  for (const Value& item : items) {
    if (std::ssize(line) == count) MF_TRY_STATUS(finish());
    line.push_back(item);
  }
  if (!line.empty()) {
    if (!fill.is_none() && std::ssize(line) < count) {
      MF_TRY_STATUS(evaluation.budget().room(static_cast<std::uint64_t>(count) * sizeof(Value)));
      line.resize(static_cast<std::size_t>(count), fill);
    }
    MF_TRY_STATUS(finish());
  }
  return evaluation.heap().sequence(std::move(out), SequenceKind::generator);
}

Result<Value> slice_filter(Evaluation& evaluation, const Value& input, const Arguments& arguments) {
  MF_TRY(const Bound bound, bind("slice", arguments, {"slices", "fill_with"}, 1));
  MF_TRY(const std::int64_t slices, whole("slice", *bound[0]));
  MF_TRY(const std::vector<Value> items, elements(input, evaluation.heap()));
  if (slices == 0) return type_error("slice() is given 0 slices");
  const Value fill = bound[1].value_or(Value());
  std::vector<Value> out;
  std::size_t at = 0;
  for (std::int64_t i = 0; i < slices; ++i) {
    MF_TRY_STATUS(evaluation.budget().step());
    const auto size = static_cast<std::int64_t>(items.size());
    const bool has_extra = i < size % slices;
    const auto length = static_cast<std::size_t>(size / slices + (has_extra ? 1 : 0));
    std::vector<Value> part(items.begin() + static_cast<std::ptrdiff_t>(at),
                            items.begin() + static_cast<std::ptrdiff_t>(at + length));
    at += length;
    if (!fill.is_none() && !has_extra) part.push_back(fill);
    MF_TRY(Value list, evaluation.heap().sequence(std::move(part)));
    out.push_back(std::move(list));
  }
  return evaluation.heap().sequence(std::move(out), SequenceKind::generator);
}

// Pairs of a key and the elements with that key, in the order of the keys.
Result<Value> groupby_filter(Evaluation& evaluation, const Value& input, const Arguments& arguments) {
  MF_TRY(const Bound bound, bind("groupby", arguments, {"attribute", "default", "case_sensitive"}, 1));
  const Heap& heap = evaluation.heap();
  MF_TRY(const std::vector<Value> items, elements(input, heap));
  const bool ignore_case = !truth_or(bound[2], false);
  std::vector<std::pair<Value, Value>> keyed;
  const auto value_of = [&](const Value& item) {
    return by_path(evaluation, item, *bound[0], bound[1].value_or(Value()));
  };
  for (const Value& item : items) {
    MF_TRY(const Value value, value_of(item));
    MF_TRY(Value key, folded(evaluation, value, ignore_case));
    keyed.emplace_back(std::move(key), item);
  }
  MF_TRY_STATUS(sort_by_keys(evaluation, keyed, false));
  std::vector<Value> groups;
  for (std::size_t begin = 0; begin < keyed.size();) {
    std::size_t end = begin;
    std::vector<Value> members;
    for (bool same = true; same && end < keyed.size();) {
      members.push_back(keyed[end++].second);
      if (end < keyed.size()) {
        MF_TRY(same, equal(keyed[end].first, keyed[begin].first, evaluation.budget()));
      }
    }
    MF_TRY(Value grouper, value_of(members.front()));
    MF_TRY(Value list, heap.sequence(std::move(members)));
    MF_TRY(Value group, heap.sequence({grouper, list}, SequenceKind::tuple));
    group.sequence().is_group = true;
    groups.push_back(std::move(group));
    begin = end;
  }
  return heap.sequence(std::move(groups));
}

}  // namespace

Result<Value> folded(Evaluation& evaluation, const Value& value, bool ignore_case) {
  if (!ignore_case || !value.is_string()) return value;
  MF_TRY_STATUS(evaluation.budget().work(value.bytes().size() * 2));
  return evaluation.heap().string(lower_case(value.bytes()));
}

Result<Value> by_path(Evaluation& evaluation, const Value& item, const Value& path, const Value& otherwise) {
  const auto or_default = [&](const Value& value) {
    return value.is_undefined() && !otherwise.is_none() ? otherwise : value;
  };
  if (path.is_none()) return item;
  if (!path.is_string()) {
    MF_TRY(Value value, evaluation.item(item, path));
    return or_default(std::move(value));
  }
  Value out = item;
  std::string_view rest = path.bytes();
  for (bool more = true; more;) {
    const std::size_t dot = rest.find('.');
    more = dot != std::string_view::npos;
    const std::string_view part = rest.substr(0, dot);
    if (more) rest.remove_prefix(dot + 1);
    MF_TRY_STATUS(evaluation.budget().step());
    const bool is_index = !part.empty() && part.size() < 18 &&
                          std::all_of(part.begin(), part.end(), [](char c) { return c >= '0' && c <= '9'; });
    Value key;
    if (is_index) {
      std::int64_t index = 0;
      for (const char c : part) index = index * 10 + (c - '0');
      key = Value::integer(index);
    } else {
      MF_TRY(key, evaluation.heap().string(part));
    }
    MF_TRY(out, evaluation.item(out, key));
    out = or_default(std::move(out));
  }
  return out;
}

Status sort_by_keys(Evaluation& evaluation, std::vector<std::pair<Value, Value>>& keyed, bool reverse) {
  std::optional<Error> failure;
  const auto before = [&](const auto& a, const auto& b) {
    if (failure) return false;
    // A reversed sort is stable too.
    const Result<std::partial_ordering> ordering =
        reverse ? order(b.first, a.first, evaluation.budget()) : order(a.first, b.first, evaluation.budget());
    if (!ordering) failure = ordering.error();
    return ordering && *ordering < 0;
  };
  std::stable_sort(keyed.begin(), keyed.end(), before);
  if (failure) return *std::move(failure);
  return {};
}

FilterFunction find_sequence_filter(std::string_view name) {
  static constexpr std::pair<std::string_view, FilterFunction> kFilters[] = {
      {"batch", batch_filter},       {"count", length_filter},       {"d", default_filter},
      {"default", default_filter},   {"dictsort", dictsort_filter},  {"first", first_filter},
      {"groupby", groupby_filter},   {"items", items_filter},        {"join", join_filter},
      {"last", last_filter},         {"length", length_filter},      {"list", list_filter},
      {"max", extreme_filter<true>}, {"min", extreme_filter<false>}, {"reverse", reverse_filter},
      {"slice", slice_filter},       {"sort", sort_filter},          {"sum", sum_filter},
      {"unique", unique_filter},
  };
  const auto* found = std::find_if(std::begin(kFilters), std::end(kFilters),
                                   [&](const auto& filter) { return filter.first == name; });
  return found == std::end(kFilters) ? nullptr : found->second;
}

}  // namespace moeflux::jinja
