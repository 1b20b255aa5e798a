#pragma once
// The values of the template language: the subset of Python's that templates use.
//
// A Value is small and cheap to copy. Strings, lists, dicts and other objects are shared and immutable, as in
// the sandbox of Jinja, with two exceptions: namespaces, and the read position of a generator. Scalars and
// containers record whether they came from data; strings record it per byte.
//
// A Heap makes objects, charges them to the budget of a rendering and bounds their nesting, so that a walk
// over a value has bounded recursion. One thread at a time, except for the constants of a parsed template,
// which are immutable.

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/check.h"
#include "base/json/json.h"
#include "base/result.h"
#include "text/template/jinja/budget.h"
#include "text/template/jinja/marked_text.h"

namespace moeflux::jinja {

enum class Kind : std::uint8_t {
  undefined,
  none,
  boolean,
  integer,
  real,
  string,
  sequence,
  dict,
  name_space,
  loop,
  callable,
};

enum class SequenceKind : std::uint8_t { list, tuple, range, generator, keys, values, items };

struct Object {
  Object() = default;
  Object(const Object&) = delete;
  Object& operator=(const Object&) = delete;
  virtual ~Object() = default;

  Charge charge;
  std::uint32_t depth = 0;  // of containers inside it
  bool data = false;        // the whole value came from data
};

struct StringObject;
struct SequenceObject;
struct DictObject;
struct NamespaceObject;
struct LoopObject;
struct CallableObject;

class Value {
 public:
  Value() = default;  // None
  static Value boolean(bool value, bool data = false);
  static Value integer(std::int64_t value, bool data = false);
  static Value real(double value, bool data = false);
  Value(Kind kind, std::shared_ptr<Object> object) : kind_(kind), object_(std::move(object)) {}

  Kind kind() const { return kind_; }
  bool is(Kind kind) const { return kind_ == kind; }
  bool is_undefined() const { return kind_ == Kind::undefined; }
  bool is_none() const { return kind_ == Kind::none; }
  bool is_string() const { return kind_ == Kind::string; }
  bool is_dict() const { return kind_ == Kind::dict; }
  bool is_sequence() const { return kind_ == Kind::sequence; }
  bool is_sequence(SequenceKind kind) const;
  bool is_number() const { return kind_ >= Kind::boolean && kind_ <= Kind::real; }  // booleans are numbers
  bool is_whole() const { return kind_ == Kind::boolean || kind_ == Kind::integer; }

  // Whether a scalar or a container came from data. Strings have marks instead.
  bool is_data() const { return object_ != nullptr ? object_->data : data_; }
  Value& set_data(bool data) {
    data_ = data;
    return *this;
  }

  bool as_boolean() const { return scalar_.integer != 0; }
  std::int64_t as_integer() const { return scalar_.integer; }  // of a whole number
  double as_real() const {                                     // of a number
    return kind_ == Kind::real ? scalar_.real : static_cast<double>(scalar_.integer);
  }
  const StringObject& string() const;
  const MarkedText& text() const;
  std::string_view bytes() const;
  SequenceObject& sequence() const;
  const DictObject& dict() const;
  NamespaceObject& name_space() const;
  LoopObject& loop() const;
  const CallableObject& callable() const;
  const std::string& undefined_why() const;
  const std::shared_ptr<Object>& object() const { return object_; }

  // The same object, or the same scalar of the same type, like Python's `is`.
  bool same(const Value& other) const;
  std::uint32_t depth() const { return object_ != nullptr ? object_->depth : 0; }

 private:
  Kind kind_ = Kind::none;
  bool data_ = false;
  union {
    std::int64_t integer;
    double real;
  } scalar_ = {0};
  std::shared_ptr<Object> object_;
};

struct UndefinedObject : Object {
  std::string why;  // the error message when it is used: "'x' is undefined"
};

struct StringObject : Object {
  MarkedText text;
  std::size_t length = 0;  // in code points
  bool ascii() const { return length == text.bytes.size(); }
};

struct SequenceObject : Object {
  SequenceKind kind = SequenceKind::list;
  std::vector<Value> items;
  std::size_t next = 0;                          // of a generator: the number of items read
  std::int64_t start = 0, stop = 0, stride = 1;  // of a range
  bool is_group = false;                         // a tuple of groupby(), with attributes grouper and list
};

// An order of keys in which 1, 1.0 and True are equal. Used in trees instead of hashes, because hostile data
// could collide.
struct KeyLess {
  bool operator()(const Value& a, const Value& b) const;
};

// Keys are None, booleans, numbers and strings, in order of insertion.
struct DictObject : Object {
  std::vector<std::pair<Value, Value>> entries;
  std::map<Value, std::size_t, KeyLess> index;  // filled from kIndexedFrom entries on

  static bool is_key(const Value& value) { return value.is_none() || value.is_number() || value.is_string(); }
  const Value* find(const Value& key) const;
  const Value* find(std::string_view key) const;
  // Inserts, or replaces the value of an equal key.
  void put(Value key, Value value);

 private:
  std::optional<std::size_t> place_of(const Value& key) const;
};

struct NamespaceObject : Object {
  std::vector<std::pair<std::string, Value>> entries;
  const Value* find(std::string_view name) const;
};

// Makes objects and charges them to a budget.
class Heap {
 public:
  explicit Heap(Budget& budget) : budget_(budget) {}

  Budget& budget() const { return budget_; }

  Result<Value> string(MarkedText text) const;
  Result<Value> string(TextBuilder builder) const;
  Result<Value> string(std::string_view text) const { return string(MarkedText::from_template(text)); }
  TextBuilder builder() const { return TextBuilder(budget_.limits().string_bytes); }
  Result<Value> sequence(std::vector<Value> items, SequenceKind kind = SequenceKind::list) const;
  Result<Value> dict(const std::vector<std::pair<Value, Value>>& entries) const;
  Result<Value> range(std::int64_t start, std::int64_t stop, std::int64_t stride) const;
  // Never fails, because it may describe a failure.
  static Value undefined(std::string why);
  // Converts JSON, nested at most as deep as parse_json() allows. `is_data` marks every string, scalar and
  // container.
  Result<Value> value(const Json& json, bool is_data) const;

  // Charges an object of any other kind and checks its depth.
  Status admit(Object& object, std::size_t bytes) const;

 private:
  Result<Value> value_inside(const Json& json, bool is_data, std::uint32_t depth) const;

  Budget& budget_;
};

// A string that belongs to a template instead of a rendering.
Value constant_string(std::string text);

bool truth(const Value& value);
// Python's name of the type: "str", "NoneType".
std::string_view type_name(const Value& value);
// The errors for Python's TypeError and for the use of an undefined value in Jinja.
Error type_error(std::string message);
Error undefined_error(const Value& undefined);

Result<bool> equal(const Value& a, const Value& b, Budget& budget);
// Compares `a` with `b`; fails if they have no order.
Result<std::partial_ordering> order(const Value& a, const Value& b, Budget& budget);
// The operator `in`.
Result<bool> contains(const Value& container, const Value& item, Budget& budget);

// The elements of an iteration over `value`. Reads a generator to its end.
Result<std::vector<Value>> elements(const Value& value, const Heap& heap);
bool is_iterable(const Value& value);
// len(), if defined.
std::optional<std::size_t> length_of(const Value& value);

}  // namespace moeflux::jinja
