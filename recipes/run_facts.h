#pragma once

#include "base/json.h"
#include "config/settings.h"
#include "recipes/model_session.h"

namespace lorikeet::recipes {

/// What run.json tells about where and with what a run was made: versions, device, threads, precision, seed.
Json run_facts(const ModelSession& session, const config::Settings& settings);

}  // namespace lorikeet::recipes
