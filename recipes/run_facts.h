#pragma once

#include <string>
#include <vector>

#include "base/json.h"
#include "config/settings.h"
#include "plan/memory.h"
#include "plan/micro_size.h"
#include "plan/strategy.h"
#include "recipes/model_session.h"

namespace lorikeet::recipes {

/// What run.json tells about where and with what a run was made: versions, the device of every rank, threads,
/// precision, seed.
Json run_facts(const ModelSession& session, const config::Settings& settings,
               const std::vector<std::string>& devices, const plan::Strategy& strategy);

/// The memory that a training step will need at its peak, by lib/plan's formula, where `degree` ranks share
/// one copy of the frozen weights.
plan::MemoryEstimate expected_memory(const ModelSession& session, const config::Settings& settings,
                                     const plan::MicroSize& micro, int degree);

}  // namespace lorikeet::recipes
