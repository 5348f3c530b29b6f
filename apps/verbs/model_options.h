#pragma once

#include <string>
#include <vector>

#include "config/settings.h"

namespace lorikeet::apps {

/// The settings of a verb that has no config file: defaults and the overrides of its command line, with
/// `model` as model.path. Throws Error, with what to do, when `model` isn't a folder, such as a hub's name
/// for one.
config::Settings verb_settings(const std::string& model, const std::vector<std::string>& overrides);

}  // namespace lorikeet::apps
