#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

// YAML from outside as a plain tree with places, under hard limits. The only file that knows yaml-cpp is
// yaml.cpp.
namespace lorikeet::config {

struct YamlNode {
  enum class Kind { kNull, kScalar, kSequence, kMapping };

  Kind kind = Kind::kNull;
  std::string text;             ///< a scalar's
  bool quoted = false;          ///< a quoted or block scalar: never a number, a boolean or null
  std::string key;              ///< its key, when it is a member of a mapping
  std::string place;            ///< "run.yaml:12", for errors; of a member, where its key stands
  std::vector<YamlNode> items;  ///< elements of a sequence or members of a mapping, in the file's order

  bool is_null() const { return kind == Kind::kNull; }
  bool is_scalar() const { return kind == Kind::kScalar; }
  bool is_sequence() const { return kind == Kind::kSequence; }
  bool is_mapping() const { return kind == Kind::kMapping; }

  /// The member of a mapping, or nullptr.
  const YamlNode* find(std::string_view name) const;
  YamlNode* find(std::string_view name);

  /// For "got ..." in errors: "'abc'", "null", "a list", "a mapping". Control characters are escaped.
  std::string describe() const;
};

struct YamlLimits {
  std::size_t max_bytes = std::size_t{1} << 20;
  std::size_t max_depth = 16;
  std::size_t max_nodes = 20000;
};

/// Parses one YAML document; an empty one is null. `name` starts every place ("run.yaml" gives "run.yaml:3").
/// Refuses aliases, tags, duplicate keys, keys that are no scalars, a second document, what is not UTF-8 and
/// what is beyond the limits. Throws Error.
YamlNode parse_yaml(std::string_view text, const std::string& name, const YamlLimits& limits = {});

/// `text` as a YAML scalar on one line that reads back as the same string: plain where that is safe, else in
/// double quotes.
std::string quote_yaml(std::string_view text);

}  // namespace lorikeet::config
