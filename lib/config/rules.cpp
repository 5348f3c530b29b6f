#include "config/rules.h"

#include <charconv>
#include <cmath>
#include <system_error>

#include "base/error.h"
#include "base/home.h"

namespace lorikeet::config {
namespace {

bool is_plain(const YamlNode& node) { return node.is_scalar() && !node.quoted; }

template <typename T>
std::optional<T> parse_whole(std::string_view text) {
  if (text.starts_with('+')) text.remove_prefix(1);
  T value{};
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return value;
}

}  // namespace

ValueError unexpected(const std::string& expected, const YamlNode& got) {
  return {"expected " + expected + ", got " + got.describe()};
}

ValueError not_nested(const std::string& key) {
  const std::vector<std::string> parts = split(escape_control(key), '.');
  return {"expected nested keys, as in " + join(parts, ": {") + ": ..." + std::string(parts.size() - 1, '}') +
          ", got one with a dot"};
}

std::string format_number(double value) {
  std::array<char, 40> buffer{};
  const auto [end, error] = std::to_chars(buffer.data(), buffer.data() + buffer.size(), value);
  std::string text(buffer.data(), end);
  // "2e-04" -> "2.0e-4", "1e+20" -> "1.0e+20": without the point or the sign, readers of YAML 1.1 (PyYAML)
  // take it for a string.
  const std::size_t e = text.find('e');
  if (e == std::string::npos) return text;
  std::string mantissa = text.substr(0, e);
  if (mantissa.find('.') == std::string::npos) mantissa += ".0";
  const std::size_t digits = text.find_first_not_of('0', e + 2);
  return mantissa + text.substr(e, 2) + text.substr(digits);
}

IntegerRule::Value IntegerRule::read(const YamlNode& node) const {
  const auto value = is_plain(node) ? parse_whole<Value>(node.text) : std::nullopt;
  if (!value || *value < least || *value > most) throw unexpected(expected(), node);
  return *value;
}

std::string IntegerRule::expected() const {
  const bool open = most == std::numeric_limits<Value>::max();
  if (!open) return "an integer from " + std::to_string(least) + " to " + std::to_string(most);
  return "an integer, at least " + std::to_string(least);
}

NumberRule::Value NumberRule::read(const YamlNode& node) const {
  const auto value = is_plain(node) ? parse_whole<Value>(node.text) : std::nullopt;
  const bool fits = value && std::isfinite(*value) && (!at_least || *value >= *at_least) &&
                    (!above || *value > *above) && (!at_most || *value <= *at_most) &&
                    (!below || *value < *below);
  if (!fits) throw unexpected(expected(), node);
  return *value;
}

std::string NumberRule::expected() const {
  std::string out = "a number";
  if (at_least) out += ", at least " + format_number(*at_least);
  if (above) out += ", above " + format_number(*above);
  if (at_most) out += ", at most " + format_number(*at_most);
  if (below) out += ", below " + format_number(*below);
  return out;
}

bool FlagRule::read(const YamlNode& node) const {
  // As YAML 1.2's core schema spells them.
  for (const char* word : {"true", "True", "TRUE"})
    if (is_plain(node) && node.text == word) return true;
  for (const char* word : {"false", "False", "FALSE"})
    if (is_plain(node) && node.text == word) return false;
  throw unexpected(expected(), node);
}

std::string TextRule::read(const YamlNode& node) const {
  if (!node.is_scalar() || node.text.empty()) throw unexpected(what, node);
  // Most texts are paths; no file name holds a NUL, and a C function would cut the text there.
  if (node.text.find('\0') != std::string::npos)
    throw ValueError{"expected " + what + ", got a text with a NUL"};
  if (!is_utf8(node.text)) throw ValueError{"expected " + what + ", got a text that is not UTF-8"};
  return node.text;
}

std::string PathRule::read(const YamlNode& node) const {
  try {
    return expand_home(TextRule{what}.read(node));
  } catch (const Error& error) {
    throw ValueError{error.what()};
  }
}

std::vector<YamlNode> list_items(const YamlNode& node, const std::string& expected) {
  if (node.is_sequence()) return node.items;
  if (!node.is_scalar()) throw unexpected(expected, node);
  YamlNode item = node;
  item.key.clear();
  if (node.quoted) return {item};
  std::vector<YamlNode> items;
  for (const std::string& part : split(node.text, ',')) {
    item.text = trim(part);
    if (item.text.empty()) {
      ValueError error = unexpected(expected, node);
      error.message += "; between commas stands a value each, or write the list in brackets: '[a, b]'";
      throw error;
    }
    items.push_back(item);
  }
  return items;
}

DeviceSetting DeviceRule::read(const YamlNode& node) const {
  using Kind = DeviceSetting::Kind;
  static constexpr std::string_view kCuda = "cuda:";
  if (!node.is_scalar()) throw unexpected(expected(), node);
  const std::string& name = node.text;
  if (name == "auto") return {Kind::kAuto, {}, {}};
  if (name == "cpu") return {Kind::kCpu, {}, {}};
  if (name == "cuda") return {Kind::kCuda, {}, {}};
  if (name.starts_with(kCuda)) {
    static constexpr std::int64_t kMostDevices = 1024;
    const auto index = parse_whole<std::int64_t>(std::string_view(name).substr(kCuda.size()));
    if (index && *index >= 0 && *index < kMostDevices) return {Kind::kCuda, index, {}};
  }
  const bool uuid = name.starts_with("GPU-") || name.starts_with("MIG-");
  const std::string_view digits = std::string_view(name).substr(uuid ? 4 : 0);
  const bool address = digits.find(':') != std::string_view::npos;
  const char* alphabet = uuid ? "0123456789abcdefABCDEF-" : "0123456789abcdefABCDEF:.";
  if ((uuid || address) && !digits.empty() && digits.find_first_not_of(alphabet) == std::string_view::npos) {
    return {Kind::kCard, {}, name};
  }
  throw unexpected(expected(), node);
}

std::string DeviceRule::write(const DeviceSetting& value) const {
  switch (value.kind) {
    case DeviceSetting::Kind::kAuto: return "auto";
    case DeviceSetting::Kind::kCpu: return "cpu";
    case DeviceSetting::Kind::kCuda: break;
    case DeviceSetting::Kind::kCard: return quote_yaml(value.card);
  }
  return value.index ? "cuda:" + std::to_string(*value.index) : "cuda";
}

ValueError wrong_choice(const YamlNode& got, const std::vector<std::string>& words) {
  ValueError error = unexpected(words.size() == 1 ? words[0] : "one of " + join(words, ", "), got);
  if (got.is_scalar()) error.message += did_you_mean(got.text, words);
  return error;
}

TextMapRule::Value TextMapRule::read(const YamlNode& node) const {
  if (!node.is_mapping()) throw unexpected(expected(), node);
  Value out;
  for (const YamlNode& item : node.items) {
    if (!item.is_scalar() || item.text.empty()) {
      throw ValueError{"expected a name for '" + escape_control(item.key) + "', got " + item.describe()};
    }
    out[item.key] = item.text;
  }
  return out;
}

std::string TextMapRule::write(const Value& value) const {
  std::vector<std::string> parts;
  for (const auto& [name, column] : value) parts.push_back(quote_yaml(name) + ": " + quote_yaml(column));
  return "{" + join(parts, ", ") + "}";
}

}  // namespace lorikeet::config
