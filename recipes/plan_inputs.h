#pragma once

#include <string>

#include "data/token_dataset.h"
#include "precision/policy.h"
#include "recipes/model_session.h"
#include "recipes/plan_run.h"

// What a plan knows of the model and of the data, and what it assumes where they aren't there.
namespace lorikeet::recipes {

/// The model that is planned for: model.path's, whose folder needs no weights, or, with `request.published`,
/// that of this config.json alone; then there is no tokenizer.
ModelSession planned_model(const PlanRequest& request, const precision::Policy& policy);

struct PlannedRows {
  data::TokenDataset rows;
  std::string assumed;  ///< why, and how to plan with the data itself; "" of rows that are there
};

/// The rows of data.train.path. Where that file isn't there and the command line doesn't name it, or without
/// a tokenizer, the rows of one step instead, each of data.max_seq_len tokens that are all trained on: of
/// rows no longer than that, none need more memory.
PlannedRows planned_rows(const PlanRequest& request, const ModelSession& session);

}  // namespace lorikeet::recipes
