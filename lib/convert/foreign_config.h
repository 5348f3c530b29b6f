#pragma once

#include <cstdint>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "config/yaml.h"

namespace lorikeet::convert {

/// Another trainer's config. Remembers which keys were read and gathers all problems, so that nothing is
/// passed over in silence and one run tells everything.
class ForeignConfig {
 public:
  ForeignConfig(std::string_view yaml, const std::string& name);

  /// The value of "a.b", or nullptr where it is absent or null; "a.0.b" is in the first item of a list.
  /// Counts as read.
  const config::YamlNode* find(std::string_view key);
  bool has(std::string_view key) { return find(key) != nullptr; }
  /// A scalar with references such as ${output_dir} replaced; nothing where it is absent. What isn't a
  /// scalar, or isn't of the type, is a problem.
  std::optional<std::string> text(std::string_view key);
  std::optional<std::int64_t> integer(std::string_view key);
  /// An integer of at least 1; another is a problem.
  std::optional<std::int64_t> count(std::string_view key);
  std::optional<double> number(std::string_view key);
  /// A number as it is written there, or `fallback` where it is absent.
  std::string number_text(std::string_view key, const std::string& fallback);
  bool boolean(std::string_view key, bool fallback);
  /// A list of scalars; empty where it is absent.
  std::vector<std::string> list(std::string_view key);
  /// "[0.9, 0.95]", a list of numbers as it is written there; nothing where it is absent or empty.
  std::optional<std::string> number_list(std::string_view key);
  /// How many items a list of mappings has; 0 where it is absent.
  std::size_t size(std::string_view key);

  /// "FILE:LINE: KEY MESSAGE": would change the result, and can't be had here.
  void problem(std::string_view key, const std::string& message);
  /// Keys, with all below them, that need no counterpart. Their values, where given, become comments: "KEY:
  /// REASON".
  void pass_over(std::string_view key, const std::string& reason);

  const std::vector<std::string>& comments() const { return comments_; }
  /// Throws Error with all problems, and a problem for each key that nobody read.
  void finish();

 private:
  const config::YamlNode* locate(std::string_view key) const;
  std::string resolved(const std::string& text, int depth = 0) const;
  void report_unread(const config::YamlNode& node, const std::string& prefix);

  std::string name_;
  config::YamlNode root_;
  std::set<std::string, std::less<>> read_, whole_;  // whole_: with all below
  std::vector<std::string> problems_, comments_;
};

}  // namespace lorikeet::convert
