#include "config/source_rule.h"

#include <algorithm>

#include "base/strings.h"
#include "config/schema.h"

namespace lorikeet::config {
namespace {

constexpr std::string_view kSection = "data.train.";

bool is_of_source(const Field& field) {
  static const std::vector<std::string> kOfWhole{"data.train.sources", "data.train.mix_by",
                                                 "data.train.stopping_strategy"};
  return field.name.starts_with(kSection) &&
         std::find(kOfWhole.begin(), kOfWhole.end(), field.name) == kOfWhole.end();
}

// Reads the members of `node` into the settings of data.train; `section` is "data.train." or one below it.
void read_members(const YamlNode& node, const std::string& section, Settings& into) {
  for (const YamlNode& item : node.items) {
    const std::string name = section + item.key;
    const auto fail = [&](const std::string& what) {
      const std::string place = item.place.empty() ? "" : " (" + item.place + ")";
      return ValueError{"'" + escape_control(name.substr(kSection.size())) + "'" + place + ": " + what};
    };
    const bool is_section = schema().is_section(name);
    const Field* field = schema().find(name);
    if (item.key.find('.') != std::string::npos && (is_section || field != nullptr))
      throw fail(not_nested(item.key).message);
    if (is_section) {
      if (!item.is_mapping() && !item.is_null()) throw fail(unexpected("a mapping", item).message);
      read_members(item, name + ".", into);
      continue;
    }
    if (field == nullptr || !is_of_source(*field)) {
      throw fail("unknown key of a source" +
                 schema().suggestion(section.substr(0, section.size() - 1), item.key));
    }
    try {
      field->read(into, item);
    } catch (const ValueError& error) {
      throw fail(error.message);
    }
  }
}

}  // namespace

SourceListRule::Value SourceListRule::read(const YamlNode& node) const {
  if (!node.is_sequence()) throw unexpected(expected(), node);
  Value sources;
  for (const YamlNode& item : node.items) {
    if (!item.is_mapping()) throw unexpected(expected(), item);
    if (item.find("path") == nullptr)
      throw ValueError{"expected each source to have a path, got one without"};
    Settings settings;
    read_members(item, std::string(kSection), settings);
    sources.push_back(settings.data.train);
  }
  return sources;
}

std::string SourceListRule::write(const Value& value) const {
  static const Settings kDefaults;
  std::vector<std::string> items;
  for (const SourceSettings& source : value) {
    Settings settings;
    static_cast<SourceSettings&>(settings.data.train) = source;
    std::vector<std::string> members, where;
    for (const Field& field : schema().fields()) {
      if (!is_of_source(field)) continue;
      const std::string written = field.write(settings);
      if (field.leaf() != "path" && written == field.write(kDefaults)) continue;
      const bool is_direct = field.name.find('.', kSection.size()) == std::string::npos;
      (is_direct ? members : where).push_back(std::string(field.leaf()) + ": " + written);
    }
    if (!where.empty()) members.push_back("where: {" + join(where, ", ") + "}");
    items.push_back("{" + join(members, ", ") + "}");
  }
  return "[" + join(items, ", ") + "]";
}

}  // namespace lorikeet::config
