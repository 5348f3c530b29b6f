#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "config/settings.h"

namespace lorikeet::apps {

/// The settings of a verb that has no config file: defaults and the overrides of its command line, with
/// `model` as model.path. `verb` is a row of the table of what such verbs read: "eval", "generate", "generate
/// --data", "merge" or "preview". Throws Error, with what to do, when `model` isn't a folder, such as a hub's
/// name for one, for an override that is wrong, and for one of a setting that the verb doesn't read.
config::Settings verb_settings(std::string_view verb, const std::string& model,
                               const std::vector<std::string>& overrides);

}  // namespace lorikeet::apps
