#pragma once

#include "data/packing.h"
#include "data/token_dataset.h"
#include "recipes/model_session.h"

namespace lorikeet::recipes {

/// Runs forward and backward over the fullest micro-batch that `options` allow, and forgets the gradients:
/// whether the device's memory sufficed. Weights and adapters are allocated; those that are split over ranks
/// can't be tried, since one that fails would leave the others waiting.
bool trial_step(ModelSession& session, const data::TokenDataset& dataset, const data::MicroOptions& options,
                bool checkpointing);

}  // namespace lorikeet::recipes
