#pragma once

#include <string>
#include <vector>

#include "config/rules.h"
#include "config/settings.h"

namespace lorikeet::config {

/// A list of the sources of a mixture: mappings with the settings of data.train as keys. They are read by
/// those settings' own declarations.
struct SourceListRule {
  using Value = std::vector<SourceSettings>;

  Value read(const YamlNode& node) const;
  std::string write(const Value& value) const;
  std::string expected() const {
    return "a list of mappings, each with path and other settings of data.train";
  }
};

}  // namespace lorikeet::config
