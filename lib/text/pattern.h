#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <variant>

#include "base/json.h"
#include "text/regex.h"

namespace lorikeet::text {

/// A "pattern" of Split and Replace: {"String": literal} or {"Regex": expression}.
class Pattern {
 public:
  explicit Pattern(std::string literal) : value_(std::move(literal)) {}
  explicit Pattern(Regex regex) : value_(std::move(regex)) {}

  /// Calls `visit(begin, end)` for the matches in `text` from left to right.
  template <class Visit>
  void for_each_match(std::string_view text, Visit&& visit) const {
    if (const auto* literal = std::get_if<std::string>(&value_)) {
      std::size_t at = 0;
      while ((at = text.find(*literal, at)) != std::string_view::npos) {
        visit(at, at + literal->size());
        at += literal->size();
      }
    } else {
      std::get<Regex>(value_).for_each_match(text, visit);
    }
  }

  /// `text` with every match replaced by `content`, taken literally.
  std::string replace(std::string_view text, std::string_view content) const;

 private:
  std::variant<std::string, Regex> value_;
};

/// Reads a pattern; throws Error for an empty literal, a bad expression or another form.
Pattern read_pattern(const JsonView& json);

}  // namespace lorikeet::text
