#pragma once

#include "base/json.h"
#include "recipes/plan_run.h"

namespace lorikeet::recipes {

/// All of a plan, as docs/plan.md lists it.
Json plan_json(const RunPlan& plan);

}  // namespace lorikeet::recipes
