#pragma once

#include <string>
#include <vector>

#include "config/settings.h"

namespace lorikeet::apps {

/// The settings of a verb that has no config file: defaults and the overrides of its command line, with
/// `model` as model.path.
config::Settings verb_settings(const std::string& model, const std::vector<std::string>& overrides);

}  // namespace lorikeet::apps
