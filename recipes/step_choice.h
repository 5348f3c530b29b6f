#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "config/memory_saving.h"
#include "config/settings.h"
#include "data/sampler.h"
#include "data/token_dataset.h"
#include "ops/dry_run.h"
#include "plan/memory.h"
#include "recipes/devices.h"
#include "recipes/model_session.h"
#include "recipes/rank_group.h"
#include "recipes/step_plan.h"

namespace lorikeet::recipes {

/// How a run makes its steps.
struct StepChoice {
  std::int64_t micro_tokens = 0;
  std::int64_t micro_tokens_of_kind = 0;  ///< see plan::AutomaticMicro
  config::MemorySaving saving;
  plan::MemoryEstimate memory;
};

struct StepChoiceInput {
  const ModelSession& session;
  const config::Settings& settings;
  const data::TokenDataset& dataset;
  const data::Sampler& sampler;
  LeastMemory memory;
  int degree = 1;                          ///< ranks that share one copy of the base
  std::optional<std::int64_t> begun_with;  ///< the micro-batches of the run that is resumed
};

/// What a run saves before anything is known of its steps: what the settings say, and for auto as much as
/// recomputation can.
config::MemorySaving least_memory_saving(const config::Settings& settings);

/// Settles micro-batches and, where the settings leave it open, how memory is saved: the fastest by the plan
/// that fits. `plan` saves by it from then on. Logs the choice and its figures; throws Error (the environment
/// is unfit) where what is held can't fit. All ranks call it and come to the same.
StepChoice choose_step(const StepChoiceInput& input, StepPlan& plan, RankGroup& group);

/// Why micro-steps of this model can't be recorded as CUDA graphs on `target`, even where no ranks share its
/// weights; none where they can.
std::optional<std::string> obstacle_to_graphs(const ModelSession& session, const ops::DryTarget& target);

}  // namespace lorikeet::recipes
