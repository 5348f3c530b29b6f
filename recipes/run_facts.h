#pragma once

#include <string>
#include <vector>

#include "base/json.h"
#include "config/settings.h"
#include "plan/strategy.h"
#include "recipes/model_session.h"

namespace lorikeet::recipes {

/// What run.json tells about where and with what a run was made: versions, the device of every rank, threads,
/// precision, seed.
Json run_facts(const ModelSession& session, const config::Settings& settings,
               const std::vector<std::string>& devices, const plan::Strategy& strategy);

}  // namespace lorikeet::recipes
