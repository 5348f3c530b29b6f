#pragma once

#include <string>
#include <vector>

#include "base/json.h"
#include "config/settings.h"
#include "plan/strategy.h"
#include "recipes/model_session.h"
#include "train/run_state.h"

namespace lorikeet::recipes {

/// What run.json tells about where and with what a run was made: versions, the device of every rank, threads,
/// precision, seed.
Json run_facts(const ModelSession& session, const config::Settings& settings,
               const std::vector<std::string>& devices, const plan::Strategy& strategy);

/// The fact `reference_ops`, whether the run's steps are made by the operators' references: true, false, or
/// "partly" where it goes on and `begun`, the fact of its steps so far, is another than this process makes
/// it, of which a warning is logged. Null: no steps, or a version made them that recorded nothing.
Json reference_ops_fact(const Json& begun);

/// Adds how far the run has come.
void add_progress(Json& facts, const train::RunState& state, bool stopped_early);

}  // namespace lorikeet::recipes
