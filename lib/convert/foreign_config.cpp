#include "convert/foreign_config.h"

#include <algorithm>
#include <charconv>

#include "base/error.h"
#include "base/strings.h"

namespace lorikeet::convert {
namespace {

constexpr int kMostReferences = 8;

template <typename T>
std::optional<T> parse_whole(const std::string& text) {
  T result{};
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), result);
  if (error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return result;
}

std::string value_of(const config::YamlNode& node) {
  if (!node.is_sequence()) return node.is_scalar() ? escape_control(node.text) : node.describe();
  std::vector<std::string> items;
  items.reserve(node.items.size());
  for (const config::YamlNode& item : node.items) items.push_back(value_of(item));
  return "[" + join(items, ", ") + "]";
}

// The item of a list that `number` (from 0) says, or null.
const config::YamlNode* item_of(const config::YamlNode& list, const std::string& number) {
  const auto index = parse_whole<std::size_t>(number);
  return index && list.is_sequence() && *index < list.items.size() ? &list.items[*index] : nullptr;
}

}  // namespace

ForeignConfig::ForeignConfig(std::string_view yaml, const std::string& name)
    : name_(name), root_(config::parse_yaml(yaml, name)) {
  if (!root_.is_mapping())
    throw Error("[convert] " + name + ": expected a config's keys, got " + root_.describe());
}

const config::YamlNode* ForeignConfig::locate(std::string_view key) const {
  const config::YamlNode* node = &root_;
  for (const std::string& part : split(key, '.')) {
    node = node->is_mapping() ? node->find(part) : item_of(*node, part);
    if (node == nullptr) return nullptr;
  }
  return node;
}

const config::YamlNode* ForeignConfig::find(std::string_view key) {
  read_.emplace(key);
  const config::YamlNode* node = locate(key);
  return node == nullptr || node->is_null() ? nullptr : node;
}

// "${output_dir}/logs"; a reference to what isn't there stays.
std::string ForeignConfig::resolved(const std::string& text, int depth) const {
  const std::size_t begin = text.find("${");
  const std::size_t end = begin == std::string::npos ? begin : text.find('}', begin);
  if (end == std::string::npos || depth == kMostReferences) return text;
  const config::YamlNode* node = locate(std::string_view(text).substr(begin + 2, end - begin - 2));
  if (node == nullptr || !node->is_scalar()) return text;
  return resolved(text.substr(0, begin) + node->text + text.substr(end + 1), depth + 1);
}

std::optional<std::string> ForeignConfig::text(std::string_view key) {
  const config::YamlNode* node = find(key);
  if (node == nullptr) return std::nullopt;
  if (node->is_scalar()) return resolved(node->text);
  problem(key, "is " + node->describe() + ", expected one value");
  return std::nullopt;
}

std::optional<std::int64_t> ForeignConfig::integer(std::string_view key) {
  const auto value = text(key);
  if (!value) return std::nullopt;
  if (const auto result = parse_whole<std::int64_t>(*value)) return result;
  problem(key, "is '" + escape_control(*value) + "', expected an integer");
  return std::nullopt;
}

std::optional<std::int64_t> ForeignConfig::count(std::string_view key) {
  const auto value = integer(key);
  if (!value || *value >= 1) return value;
  problem(key, "is " + std::to_string(*value) + ", expected an integer, at least 1, or nothing");
  return std::nullopt;
}

std::optional<double> ForeignConfig::number(std::string_view key) {
  const auto value = text(key);
  if (!value) return std::nullopt;
  if (const auto result = parse_whole<double>(*value)) return result;
  problem(key, "is '" + escape_control(*value) + "', expected a number");
  return std::nullopt;
}

std::string ForeignConfig::number_text(std::string_view key, const std::string& fallback) {
  return number(key) ? *text(key) : fallback;
}

bool ForeignConfig::boolean(std::string_view key, bool fallback) {
  const auto value = text(key);
  if (!value) return fallback;
  const std::string word = ascii_lower(*value);
  if (word == "true" || word == "false") return word == "true";
  problem(key, "is '" + escape_control(*value) + "', expected true or false");
  return fallback;
}

std::vector<std::string> ForeignConfig::list(std::string_view key) {
  std::vector<std::string> result;
  whole_.emplace(key);
  const config::YamlNode* node = find(key);
  if (node == nullptr) return result;
  for (const config::YamlNode& item : node->items) {
    if (node->is_sequence() && item.is_scalar()) {
      result.push_back(item.text);
    } else {
      problem(key, "holds " + item.describe() + ", expected a list of names");
    }
  }
  if (!node->is_sequence()) problem(key, "is " + node->describe() + ", expected a list");
  return result;
}

std::optional<std::string> ForeignConfig::number_list(std::string_view key) {
  const std::vector<std::string> items = list(key);
  for (const std::string& item : items) {
    if (!parse_whole<double>(item))
      problem(key, "holds '" + escape_control(item) + "', expected a list of numbers");
  }
  if (items.empty()) return std::nullopt;
  return "[" + join(items, ", ") + "]";
}

std::size_t ForeignConfig::size(std::string_view key) {
  const config::YamlNode* node = find(key);
  if (node == nullptr) return 0;
  bool fits = node->is_sequence();
  for (const config::YamlNode& item : node->items) fits = fits && item.is_mapping();
  if (!fits) problem(key, "is " + node->describe() + ", expected a list of mappings");
  return fits ? node->items.size() : 0;
}

void ForeignConfig::problem(std::string_view key, const std::string& message) {
  const config::YamlNode* node = locate(key);
  const std::string line = (node == nullptr ? name_ : node->place) + ": " + std::string(key) + " " + message;
  if (std::find(problems_.begin(), problems_.end(), line) == problems_.end()) problems_.push_back(line);
}

void ForeignConfig::pass_over(std::string_view key, const std::string& reason) {
  whole_.emplace(key);
  const config::YamlNode* node = find(key);
  if (node != nullptr) comments_.push_back(std::string(key) + ": " + value_of(*node) + " - " + reason);
}

void ForeignConfig::report_unread(const config::YamlNode& node, const std::string& prefix) {
  for (std::size_t i = 0; i < node.items.size(); ++i) {
    const config::YamlNode& item = node.items[i];
    const std::string own = node.is_sequence() ? std::to_string(i) : item.key;
    const std::string key = prefix.empty() ? own : prefix + "." + own;
    if (whole_.contains(key)) continue;
    const bool of_mappings = !item.items.empty() && item.items[0].is_mapping();
    if (!item.items.empty() && (item.is_mapping() || of_mappings)) {
      report_unread(item, key);
    } else if (!read_.contains(key) && !item.is_null()) {
      problems_.push_back(item.place + ": " + escape_control(key) +
                          " isn't known here, and may change the result; take it out if it doesn't");
    }
  }
}

void ForeignConfig::finish() {
  report_unread(root_, "");
  if (problems_.empty()) return;
  if (problems_.size() == 1) throw Error("[convert] " + problems_[0]);
  throw Error("[convert] " + std::to_string(problems_.size()) + " problems:\n  " + join(problems_, "\n  "));
}

}  // namespace lorikeet::convert
