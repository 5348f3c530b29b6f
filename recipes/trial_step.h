#pragma once

#include "comm/communicator.h"
#include "data/packing.h"
#include "data/token_dataset.h"
#include "parallel/unit_prefetcher.h"
#include "recipes/model_session.h"

namespace lorikeet::recipes {

/// Runs forward and backward over the fullest micro-batch that `options` allow, and forgets the gradients:
/// whether the device's memory sufficed. Weights and adapters are allocated. Where weights are split, all
/// ranks call it with the same options, and `prefetcher` is theirs: a rank that runs out of memory goes on
/// handing its parts to the others until their pass is over; `group` are all ranks, if there are more than
/// one. `graphs_bytes`: what recorded micro-steps will keep beside it. Throws what says that memory is short
/// where it doesn't even suffice for that.
bool trial_step(ModelSession& session, const data::TokenDataset& dataset, const data::MicroOptions& options,
                const config::MemorySaving& saving, std::int64_t graphs_bytes,
                parallel::UnitPrefetcher* prefetcher, comm::Communicator* group);

}  // namespace lorikeet::recipes
