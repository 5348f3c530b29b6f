#pragma once

#include "comm/store.h"
#include "config/settings.h"
#include "recipes/run_folder.h"

namespace lorikeet::recipes {

/// What has to be the same on all ranks of a run before they read weights: program, settings, and the
/// identity of data and base.
comm::Facts agreed_facts(const config::Settings& settings, const RunFolder::Identity& identity);

}  // namespace lorikeet::recipes
