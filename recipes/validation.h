#pragma once

#include <set>
#include <string>
#include <vector>

#include "config/settings.h"

namespace lorikeet::recipes {

struct ValidationRequest {
  config::Settings settings;
  /// Settings that the command line gives: what they name has to be there.
  std::set<std::string> given;
  /// Paths that stand in ready-made configs for the user's own: from a file, they need not be there.
  std::set<std::string> placeholders;
};

struct Validation {
  std::vector<std::string> problems;   ///< errors that a run would end with
  std::vector<std::string> warnings;   ///< that a run would begin with
  std::vector<std::string> unchecked;  ///< what remains to be seen, a noun phrase each
};

/// Holds what the settings name against the machine as a run does at its start, without reading weights: the
/// device and its precision, the model's folder and config.json, the adapter's target modules, the adapter to
/// start from, the data files' form, the chat template, and some rows of each source, which are tokenised.
/// Goes on behind a problem.
Validation validate(const ValidationRequest& request);

}  // namespace lorikeet::recipes
