#pragma once

#include <string>
#include <string_view>

#include "text/jinja/value.h"

// Filters, tests, methods and operators of the template language. All throw RenderError for what Python or
// Jinja would refuse, and for what isn't supported here.
namespace lorikeet::text::jinja {

/// Reads a call's arguments by position or name, each once; `finish` refuses those left over.
class ArgumentReader {
 public:
  ArgumentReader(std::string function, const Arguments& arguments)
      : function_(std::move(function)), arguments_(arguments) {}

  /// nullptr where it isn't given.
  const Value* maybe(std::string_view name);
  const Value& required(std::string_view name);
  bool flag(std::string_view name, bool fallback);
  std::int64_t integer(std::string_view name, std::int64_t fallback);
  void finish() const;
  const std::string& function() const { return function_; }

 private:
  std::string function_;
  const Arguments& arguments_;
  std::size_t at_ = 0, named_ = 0;
};

/// a op b for + - * / // % **
Value arithmetic(std::string_view op, const Value& a, const Value& b, Budget& budget);
Value negative(const Value& value);

/// value[key], value.name and value[begin:end:step]; undefined where there is nothing.
Value item_of(const Value& value, const Value& key);
Value attribute_of(const Value& value, std::string_view name);
Value slice_of(const Value& value, const Value& begin, const Value& end, const Value& step, Budget& budget);

/// The method `name` of a str, list or dict, bound to it; undefined where Python has none. Methods that
/// change their object are marked unsafe.
Value method_of(const Value& value, std::string_view name);

bool has_filter(std::string_view name);
bool has_test(std::string_view name);
/// value|name(arguments) for filters that call no others.
Value apply_filter(std::string_view name, const Value& value, const Arguments& arguments, Budget& budget);
/// Those of them that sort, select or map elements.
bool has_sequence_filter(std::string_view name);
Value apply_sequence_filter(std::string_view name, const Value& value, const Arguments& arguments,
                            Budget& budget);
bool apply_test(std::string_view name, const Value& value, const Arguments& arguments, Budget& budget);

/// The value at a dotted path ("function.name", "0"), as filters take it in `attribute`.
Value at_path(const Value& value, const Value& path);

}  // namespace lorikeet::text::jinja
