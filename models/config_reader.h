#pragma once

#include <cstdint>
#include <initializer_list>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"

namespace lorikeet::models {

/// Reads a family's config.json with errors that name key and file, and remembers which keys were asked for:
/// `finish` then refuses those that change what a model computes and that the family has no meaning for.
class ConfigReader {
 public:
  ConfigReader(const JsonView& config, std::string family) : config_(config), family_(std::move(family)) {}

  const JsonView& view() const { return config_; }
  const std::string& family() const { return family_; }

  /// Marks keys that are read elsewhere, or that say nothing for this family.
  void claim(std::initializer_list<std::string_view> keys);

  /// True if the key is there and not null.
  bool has(std::string_view key);
  /// True if the key is there and null, which for some keys isn't what an absent one means.
  bool is_null(std::string_view key);
  /// An integer from 1 to `largest`.
  std::int64_t size(std::string_view key, std::int64_t largest);
  std::int64_t size_or(std::string_view key, std::int64_t largest, std::int64_t fallback);
  /// An integer from 0 to `largest`. Null, which transformers refuses, could mean 0 or `absent`: an error.
  std::int64_t count_or(std::string_view key, std::int64_t largest, std::int64_t absent);
  bool flag(std::string_view key, bool fallback);
  /// A number above 0, at most `largest`.
  double positive(std::string_view key, double largest);
  double positive_or(std::string_view key, double largest, double fallback);
  /// A norm's epsilon, in (0, 1).
  double epsilon(std::string_view key);
  /// The name of a choice: one of `known`, `fallback` where it is absent.
  std::string choice(std::string_view key, const std::string& fallback,
                     std::initializer_list<std::string_view> known);
  /// Marks a key whose only supported value is `expected`, which an absent key stands for too.
  void require_flag(std::string_view key, bool expected, const std::string& why);

  /// Throws Error, naming the key, for a setting that the family doesn't read and that isn't off.
  void finish() const;

  /// Throws Error("[file: key] problem").
  [[noreturn]] void fail(std::string_view key, const std::string& problem) const;
  /// Throws Error("[file] problem"), of several keys.
  [[noreturn]] void contradiction(const std::string& problem) const;

 private:
  JsonView asked(std::string_view key);

  JsonView config_;
  std::string family_;
  std::set<std::string, std::less<>> read_;
};

}  // namespace lorikeet::models
