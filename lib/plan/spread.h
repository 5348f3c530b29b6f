#pragma once

#include <cstdint>

#include "data/packing.h"
#include "data/sampler.h"
#include "data/token_dataset.h"

namespace lorikeet::plan {

/// How a step's work falls to the ranks, on average.
struct Spread {
  double turns = 0;          ///< micro-batches of a rank
  double busiest_share = 0;  ///< of the step's tokens, those of the rank that has most
};

/// Groups steps of the run's first epoch (32 of them, evenly spaced, where there are more) as training does.
Spread spread_of_steps(const data::TokenDataset& dataset, const data::Sampler& sampler,
                       const data::MicroOptions& options, int world_size);

}  // namespace lorikeet::plan
