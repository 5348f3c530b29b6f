#include <algorithm>
#include <cctype>
#include <set>

#include "base/error.h"
#include "base/file.h"
#include "base/strings.h"
#include "config/checks.h"
#include "config/config.h"
#include "config/peer_names.h"
#include "config/schema.h"

namespace lorikeet::config {
namespace {

constexpr std::uint64_t kMostBytes = YamlLimits{}.max_bytes;

std::string join_name(std::string_view section, std::string_view key) {
  return section.empty() ? std::string(key) : std::string(section) + "." + std::string(key);
}

// True for a field, and for an entry of a field that is a map ("data.train.columns.prompt").
bool is_settable(const std::string& name) {
  if (schema().find(name) != nullptr) return true;
  const Field* map = schema().find(name.substr(0, name.rfind('.')));
  return map != nullptr && map->is_map && name.back() != '.';
}

// Rewrites a section that is written as the list of its sources to a mapping with that list, where overrides
// reach the section's other settings. An empty list would mean the default's single source, and stays wrong.
void nest_source_lists(YamlNode& node, const std::string& section) {
  for (YamlNode& item : node.items) {
    const std::string name = join_name(section, item.key);
    if (!schema().is_section(name)) continue;
    if (item.is_mapping()) {
      nest_source_lists(item, name);
    } else if (item.is_sequence() && !item.items.empty() && schema().find(name + ".sources") != nullptr) {
      YamlNode list = item;
      list.key = "sources";
      item.kind = YamlNode::Kind::kMapping;
      item.items = {std::move(list)};
    }
  }
}

// Whether the text has the setting's name, or that of one in the section of this name, as a word.
bool names_setting(std::string_view text, const std::string& name) {
  const auto in_name = [](char c) {
    return c == '_' || c == '.' || std::isalnum(static_cast<unsigned char>(c)) != 0;
  };
  for (std::size_t at = text.find(name); at != std::string_view::npos; at = text.find(name, at + 1)) {
    const std::size_t end = at + name.size();
    const bool ends = end == text.size() || text[end] == '.' || !in_name(text[end]);
    if (ends && (at == 0 || !in_name(text[at - 1]))) return true;
  }
  return false;
}

// Reads the tree into settings, gathering every problem rather than stopping at the first.
class Loader {
 public:
  Settings settings;
  std::vector<std::string> problems;
  std::set<std::string> given;   // names of the fields that have a value in the file or an override
  std::set<std::string> unread;  // those of them whose value is wrong, and sections that are none

  void read_section(const YamlNode& node, const std::string& section) {
    for (const YamlNode& item : node.items) {
      const std::string name = join_name(section, item.key);
      const bool is_section = schema().is_section(name);
      if (item.key.find('.') != std::string::npos && (is_section || is_settable(name))) {
        report(item.place, "'" + escape_control(name) + "': " + not_nested(item.key).message);
      } else if (is_section) {
        if (item.is_mapping()) {
          read_section(item, name);
        } else if (!item.is_null()) {
          unread.insert(name);
          report(item.place,
                 name + " is a section: expected its settings as a mapping, got " + item.describe());
        }
      } else if (const Field* field = schema().find(name)) {
        read_field(*field, item);
      } else {
        report(item.place,
               "unknown key '" + escape_control(name) + "'" + schema().suggestion(section, item.key));
      }
    }
  }

  void require_fields(const std::string& file) {
    for (const Field& field : schema().fields()) {
      if (!field.required || given.contains(field.name) || is_unread(field.name)) continue;
      unread.insert(field.name);
      report(file, field.name + " is required: expected " + field.expected + "; " + field.help);
    }
  }

  // A value that couldn't be read left the default in its place: what contradicts that is no problem of the
  // user's.
  void settle_all() {
    std::vector<std::string> contradictions;
    settle(settings, given, contradictions);
    for (std::string& problem : contradictions) {
      if (!follows_from(problem, unread)) problems.push_back(std::move(problem));
    }
  }

  void report(const std::string& place, const std::string& message) {
    problems.push_back(place.empty() ? message : place + ": " + message);
  }

 private:
  bool is_unread(const std::string& field) const {
    return std::any_of(unread.begin(), unread.end(),
                       [&](const std::string& name) { return field.starts_with(name + "."); });
  }

  void read_field(const Field& field, const YamlNode& node) {
    given.insert(field.name);
    try {
      field.read(settings, node);
    } catch (const ValueError& error) {
      unread.insert(field.name);
      report(node.place, field.name + ": " + error.message);
    }
  }
};

// The member `key` of the mapping `node`, made when absent; null counts as an empty mapping. nullptr where
// `node` is a value, which is reported when the settings are read.
YamlNode* member(YamlNode& node, const std::string& key, const std::string& place) {
  if (node.is_null()) node.kind = YamlNode::Kind::kMapping;
  if (!node.is_mapping()) return nullptr;
  if (YamlNode* found = node.find(key)) return found;
  YamlNode fresh;
  fresh.key = key;
  fresh.place = place;
  node.items.push_back(std::move(fresh));
  return &node.items.back();
}

void erase(YamlNode& root, const std::string& name) {
  const std::vector<std::string> parts = split(name, '.');
  YamlNode* node = &root;
  for (std::size_t i = 0; i + 1 < parts.size(); ++i) {
    node = node->find(parts[i]);
    if (node == nullptr) return;
  }
  std::erase_if(node->items, [&](const YamlNode& item) { return item.key == parts.back(); });
}

// Of two fields that exclude each other, the one on the command line takes the place of the file's. Both on
// the command line stay and are an error, whatever their order.
void displace_by_override(YamlNode& root, const std::string& name, const YamlNode& value,
                          std::set<std::string>& overridden) {
  overridden.insert(name);
  const Exclusion* pair = schema().exclusion_of(name);
  if (pair == nullptr) return;
  const bool is_first = pair->fields[0].name == name;
  const Exclusion::Member& own = pair->fields[is_first ? 0 : 1];
  const Exclusion::Member& other = pair->fields[is_first ? 1 : 0];
  if (overridden.contains(other.name)) return;
  Settings alone;
  try {
    schema().find(name)->read(alone, value);
  } catch (const ValueError&) {
    return;  // reported where the settings are read
  }
  if (in_force(own, alone)) erase(root, other.name);
}

// What to say after "unknown key": the nearest full name, else what the named section holds.
std::string unknown_override(const std::string& name) {
  if (auto hint = peer_hint(name)) return *hint;
  std::vector<std::string> names, same_leaf;
  const std::string_view leaf = std::string_view(name).substr(name.rfind('.') + 1);
  for (const Field& field : schema().fields()) {
    if (field.is_map && name.starts_with(field.name + ".") && name.back() != '.') {
      return "; an entry whose name has dots is set by " + field.name + "={" +
             escape_control(name.substr(field.name.size() + 1)) + ": ...}";
    }
    names.push_back(field.name);
    if (field.leaf() == leaf) same_leaf.push_back(field.name);
  }
  if (same_leaf.size() == 1) return " (did you mean '" + same_leaf[0] + "'?)";
  if (std::string meant = did_you_mean(name, names); !meant.empty()) return meant;
  const std::size_t dot = name.rfind('.');
  const std::string section = dot == std::string::npos ? "" : name.substr(0, dot);
  return schema().suggestion(schema().is_section(section) ? section : "", name.substr(dot + 1));
}

// Whether the quote that `value` begins with closes at its end.
bool is_in_quotes(std::string_view value) {
  if (value.size() < 2 || (value.front() != '"' && value.front() != '\'')) return false;
  const char quote = value.front();
  for (std::size_t i = 1; i < value.size(); ++i) {
    if (quote == '"' && value[i] == '\\') {
      ++i;
    } else if (value[i] == quote) {
      if (quote == '"' || i + 1 == value.size() || value[i + 1] != quote) return i + 1 == value.size();
      ++i;  // '' inside single quotes
    }
  }
  return false;
}

// YAML; but a command line has no comments, and a setting that is one text takes what is written there as it
// is, unless that is null or stands in quotes.
YamlNode parse_override_value(std::string_view text, const Field* field, const std::string& place) {
  const std::string value = trim(text);
  const char first = value.empty() ? '\0' : value.front();
  const bool in_quotes = is_in_quotes(value);
  const bool is_null = value.empty() || value == "null" || value == "~";
  const bool is_text = field != nullptr && field->is_text && !in_quotes && !is_null;
  const bool has_comment = !in_quotes && first != '[' && first != '{' && value.find('#') != std::string::npos;
  return is_text || has_comment ? parse_yaml(quote_yaml(value), place) : parse_yaml(text, place);
}

// Changes the tree as one override says; throws Error or ValueError. `overridden` gathers the fields that
// overrides set.
void apply_override(YamlNode& root, const std::string& text, std::set<std::string>& overridden) {
  if (find_invalid_utf8(text) != std::string::npos) throw ValueError{"expected UTF-8 text"};
  const bool drops = text.starts_with('~');
  const std::size_t equals = text.find('=');
  if (!drops && equals == std::string::npos)
    throw ValueError{"expected name=value or ~name, as in lora.rank=8 or ~lora.rank"};
  if (drops && equals != std::string::npos)
    throw ValueError{"expected ~name without a value, as in ~lora.rank"};
  const std::string name = drops ? text.substr(1) : trim(text.substr(0, equals));
  const std::string place = "override '" + escape_control(name) + "'";

  if (drops && schema().is_section(name)) return erase(root, name);
  if (!drops && schema().is_section(name)) {
    throw ValueError{"'" + name + "' is a section; set its fields one by one: " + name + "." +
                     schema().members(name).front() + "=..."};
  }
  if (name.empty() || !is_settable(name))
    throw ValueError{"unknown key '" + escape_control(name) + "'" + unknown_override(name)};
  if (drops) return erase(root, name);

  YamlNode value =
      parse_override_value(std::string_view(text).substr(equals + 1), schema().find(name), place);
  YamlNode* node = &root;
  for (const std::string& part : split(name, '.')) {
    node = member(*node, part, place);
    if (node == nullptr) return;
  }
  value.key = node->key;
  value.place = place;
  *node = value;
  displace_by_override(root, name, value, overridden);
}

// Keys by which the configs of axolotl, torchtune and litgpt are known.
bool is_another_trainers(const YamlNode& root) {
  const auto has = [](const YamlNode& node, std::string_view key) {
    return std::any_of(node.items.begin(), node.items.end(),
                       [&](const YamlNode& item) { return item.key == key; });
  };
  for (const YamlNode& item : root.items) {
    if (item.key == "base_model" || item.key == "checkpoint_dir") return true;
    if (item.is_mapping() && has(item, "_component_")) return true;
  }
  return false;
}

[[noreturn]] void fail(const std::vector<std::string>& problems, const std::string& name,
                       const YamlNode& root) {
  const std::string hint =
      is_another_trainers(root)
          ? "this looks like another trainer's config: `lorikeet convert-config FILE` converts those of "
            "axolotl, torchtune and litgpt"
          : "";
  if (problems.size() == 1) throw Error("[config] " + problems[0] + (hint.empty() ? "" : "; " + hint));
  throw Error("[config] " + std::to_string(problems.size()) + " problems in " + name + ":\n  " +
              join(problems, "\n  ") + (hint.empty() ? "" : "\n" + hint));
}

// The tree with the overrides, for `fail`.
YamlNode read_into(Loader& loader, std::string_view text, const std::string& name,
                   const std::vector<std::string>& overrides) {
  YamlNode root = parse_yaml(text, name);
  if (!root.is_mapping() && !root.is_null())
    throw Error("[config] " + root.place + ": expected sections such as 'model:', got " + root.describe());
  root.kind = YamlNode::Kind::kMapping;
  nest_source_lists(root, "");

  std::set<std::string> overridden;
  for (const std::string& override_text : overrides) {
    try {
      apply_override(root, override_text, overridden);
    } catch (const ValueError& error) {
      loader.report("override '" + escape_control(override_text) + "'", error.message);
    } catch (const Error& error) {
      static constexpr std::string_view kPrefix = "[config] ";
      loader.report("", std::string(error.what()).substr(kPrefix.size()));
    }
  }
  loader.read_section(root, "");
  loader.require_fields(name);
  loader.settle_all();
  return root;
}

}  // namespace

bool follows_from(const std::string& problem, const std::set<std::string>& unread) {
  return std::any_of(unread.begin(), unread.end(),
                     [&](const std::string& name) { return names_setting(problem, name); });
}

Settings parse_settings(std::string_view text, const std::string& name,
                        const std::vector<std::string>& overrides) {
  Loader loader;
  const YamlNode root = read_into(loader, text, name, overrides);
  if (!loader.problems.empty()) fail(loader.problems, name, root);

  if (loader.settings.checkpoint.output_dir.empty()) {
    const std::string stem = std::filesystem::path(name).stem().string();
    loader.settings.checkpoint.output_dir = "runs/" + (stem.empty() ? "run" : stem);
  }
  return loader.settings;
}

Settings load_settings(const std::filesystem::path& path, const std::vector<std::string>& overrides) {
  return parse_settings(read_file(path, kMostBytes), escape_control(path.string()), overrides);
}

PartialSettings read_settings(const std::filesystem::path& path, const std::vector<std::string>& overrides) {
  Loader loader;
  read_into(loader, read_file(path, kMostBytes), escape_control(path.string()), overrides);
  return {std::move(loader.settings), std::move(loader.problems), std::move(loader.unread)};
}

std::string make_override(std::string_view name, std::string_view text_value) {
  return std::string(name) + "=" + quote_yaml(text_value);
}

}  // namespace lorikeet::config
