#pragma once

#include <array>
#include <cstdint>
#include <limits>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/strings.h"
#include "config/settings.h"
#include "config/yaml.h"

// How one type of value is read from YAML, checked, written back and described. A rule is a small value type
// with
//   Value read(const YamlNode&) const     throws ValueError
//   std::string write(const Value&) const a YAML value on one line that reads back equal
//   std::string expected() const          "an integer, at least 1": for errors and for the reference
// and rules combine: nullable(integer(1)), list_of(text()).
namespace lorikeet::config {

/// What is wrong with a value; the loader adds the place and the field's name.
struct ValueError {
  std::string message;
};

/// "expected <expected>, got <the node>".
ValueError unexpected(const std::string& expected, const YamlNode& got);

/// For one key such as "lora.rank", with a dot, where a file nests two.
ValueError not_nested(const std::string& key);

/// The shortest decimal text that reads back as the same double: "2.0e-4", "0.999", "32".
std::string format_number(double value);

struct IntegerRule {
  using Value = std::int64_t;
  Value least = std::numeric_limits<Value>::min();
  Value most = std::numeric_limits<Value>::max();

  Value read(const YamlNode& node) const;
  std::string write(Value value) const { return std::to_string(value); }
  std::string expected() const;
};

struct NumberRule {
  using Value = double;
  std::optional<Value> at_least, above, at_most, below;

  Value read(const YamlNode& node) const;
  std::string write(Value value) const { return format_number(value); }
  std::string expected() const;
};

struct FlagRule {
  using Value = bool;
  Value read(const YamlNode& node) const;
  std::string write(Value value) const { return value ? "true" : "false"; }
  std::string expected() const { return "true or false"; }
};

/// Whether values of a rule are one text.
template <typename Rule>
inline constexpr bool is_text_rule = [] {
  if constexpr (requires { Rule::kIsText; }) return Rule::kIsText;
  return false;
}();

/// Any scalar that is not empty, taken as written: a number is a text too.
struct TextRule {
  static constexpr bool kIsText = true;
  using Value = std::string;
  std::string what;

  Value read(const YamlNode& node) const;
  std::string write(const Value& value) const { return quote_yaml(value); }
  std::string expected() const { return what; }
};

/// A text that names a file or folder, or may do so: a leading "~/" is the home folder. A bare ~ is YAML's
/// null.
struct PathRule {
  static constexpr bool kIsText = true;
  using Value = std::string;
  std::string what;

  Value read(const YamlNode& node) const;
  std::string write(const Value& value) const { return quote_yaml(value); }
  std::string expected() const { return what; }
};

/// auto | cpu | cuda | cuda:N | a card's UUID or PCI address, whose exact form is checked where cards are
/// looked for.
struct DeviceRule {
  using Value = DeviceSetting;
  Value read(const YamlNode& node) const;
  std::string write(const Value& value) const;
  std::string expected() const { return "auto, cpu, cuda, cuda:N, or a GPU's UUID or PCI address"; }
};

/// A word and what it stands for.
template <typename E>
struct Choice {
  std::string_view name;
  E value;
};

/// The message for what is none of `words`.
ValueError wrong_choice(const YamlNode& got, const std::vector<std::string>& words);

template <typename E>
struct ChoiceRule {
  using Value = E;
  std::vector<Choice<E>> choices;

  Value read(const YamlNode& node) const {
    if (node.is_scalar()) {
      for (const Choice<E>& choice : choices) {
        if (choice.name == node.text) return choice.value;
      }
    }
    throw wrong_choice(node, names());
  }
  std::string write(const Value& value) const {
    for (const Choice<E>& choice : choices) {
      if (choice.value == value) return std::string(choice.name);
    }
    return "";  // a schema without a name for one of its values: the schema's test finds it
  }
  std::string expected() const { return join(names(), " | "); }

 private:
  std::vector<std::string> names() const {
    std::vector<std::string> out;
    out.reserve(choices.size());
    for (const Choice<E>& choice : choices) out.emplace_back(choice.name);
    return out;
  }
};

/// A value or the word that stands for its absence.
template <typename Rule>
struct OptionalRule {
  static constexpr bool kIsText = is_text_rule<Rule>;
  using Value = std::optional<typename Rule::Value>;
  Rule rule;
  std::string empty_word;  // "null" or "auto"

  Value read(const YamlNode& node) const {
    if (empty_word == "null" ? node.is_null() : node.is_scalar() && node.text == empty_word)
      return std::nullopt;
    try {
      return rule.read(node);
    } catch (const ValueError& error) {
      // "expected a, got b" -> "expected a or null, got b"
      const std::size_t cut = error.message.rfind(", got ");
      if (cut == std::string::npos) throw;
      throw ValueError{error.message.substr(0, cut) + ", or " + empty_word + error.message.substr(cut)};
    }
  }
  std::string write(const Value& value) const { return value ? rule.write(*value) : empty_word; }
  std::string expected() const { return rule.expected() + ", or " + empty_word; }
};

/// The elements of a list as written: of a sequence its items, of a plain scalar the parts between its commas
/// ("q_proj,v_proj"), so that a shell needs no quotes. Throws ValueError (`expected`) for anything else.
std::vector<YamlNode> list_items(const YamlNode& node, const std::string& expected);

/// "[a, b]" of the values as `rule` writes them.
template <typename Rule>
std::string write_list(const Rule& rule, const auto& values) {
  std::vector<std::string> parts;
  parts.reserve(values.size());
  for (const auto& value : values) parts.push_back(rule.write(value));
  return "[" + join(parts, ", ") + "]";
}

/// A list; one of a single value is written without brackets when `scalar_too`.
template <typename Rule>
struct ListRule {
  using Value = std::vector<typename Rule::Value>;
  Rule rule;
  bool scalar_too = false;

  Value read(const YamlNode& node) const {
    const std::vector<YamlNode> items = list_items(node, expected());
    Value out;
    for (const YamlNode& item : items) out.push_back(rule.read(item));
    return out;
  }
  std::string write(const Value& value) const {
    return scalar_too && value.size() == 1 ? rule.write(value[0]) : write_list(rule, value);
  }
  std::string expected() const {
    return (scalar_too ? rule.expected() + ", or a list of such" : "a list of: " + rule.expected());
  }
};

/// Exactly N values.
template <typename Rule, std::size_t N>
struct TupleRule {
  using Value = std::array<typename Rule::Value, N>;
  Rule rule;

  Value read(const YamlNode& node) const {
    const std::vector<YamlNode> items = list_items(node, expected());
    if (items.size() != N) throw unexpected(expected(), node);
    Value out{};
    for (std::size_t i = 0; i < N; ++i) out[i] = rule.read(items[i]);
    return out;
  }
  std::string write(const Value& value) const { return write_list(rule, value); }
  std::string expected() const { return "a list of " + std::to_string(N) + ", each " + rule.expected(); }
};

/// A mapping of names to texts.
struct TextMapRule {
  static constexpr bool kIsMap = true;
  using Value = std::map<std::string, std::string>;
  Value read(const YamlNode& node) const;
  std::string write(const Value& value) const;
  std::string expected() const { return "a mapping of names to names"; }
};

/// A mapping of names, or patterns of names, to values of another rule; in the order written.
template <typename Rule>
struct MapRule {
  static constexpr bool kIsMap = true;
  using Value = std::vector<std::pair<std::string, typename Rule::Value>>;
  Rule rule;

  Value read(const YamlNode& node) const {
    if (!node.is_mapping()) throw unexpected(expected(), node);
    Value out;
    for (const YamlNode& item : node.items) {
      try {
        out.emplace_back(item.key, rule.read(item));
      } catch (const ValueError& error) {
        throw ValueError{"'" + escape_control(item.key) + "': " + error.message};
      }
    }
    return out;
  }
  std::string write(const Value& value) const {
    std::vector<std::string> parts;
    for (const auto& [name, entry] : value) parts.push_back(quote_yaml(name) + ": " + rule.write(entry));
    return "{" + join(parts, ", ") + "}";
  }
  std::string expected() const { return "a mapping of names to: " + rule.expected(); }
};

inline IntegerRule integer(std::int64_t least, std::int64_t most = std::numeric_limits<std::int64_t>::max()) {
  return {least, most};
}
inline FlagRule flag() { return {}; }
inline TextRule text(std::string what) { return {std::move(what)}; }
inline PathRule path(std::string what) { return {std::move(what)}; }
template <typename Rule>
OptionalRule<Rule> nullable(Rule rule) {
  return {std::move(rule), "null"};
}
template <typename Rule>
OptionalRule<Rule> or_auto(Rule rule) {
  return {std::move(rule), "auto"};
}
template <typename Rule>
ListRule<Rule> list_of(Rule rule) {
  return {std::move(rule)};
}

}  // namespace lorikeet::config
