#pragma once

#include <string>

#include "config/settings.h"
#include "hub/resolve.h"

// Paths that name something on the Hugging Face Hub, "hub:OWNER/NAME", become paths into its cache here,
// before anything else sees them. Progress goes to stderr.
namespace lorikeet::apps {

/// The folder of a model that a path or "hub:REPO[@REVISION]" names. Other paths stay as they are. Throws
/// Error as hub::resolve does.
std::string local_model(const std::string& path, hub::Absent absent = hub::Absent::kDownload);

/// The same for data: "hub:OWNER/NAME[@REVISION][/FILE]".
std::string local_data(const std::string& path, hub::Absent absent = hub::Absent::kDownload);

/// Both for model.path, data.train.path and data.validation.path.
void use_local_paths(config::Settings& settings, hub::Absent absent = hub::Absent::kDownload);

/// As use_local_paths for what the cache holds; the rest stays "hub:...".
void use_cached_paths(config::Settings& settings);

}  // namespace lorikeet::apps
