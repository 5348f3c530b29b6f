#pragma once

#include <span>
#include <vector>

#include "data/micro_batch.h"
#include "nn/batch.h"

namespace lorikeet::train {

/// The tensors of micro-batches on `device`. All of them are parts of one buffer, which goes to a GPU by a
/// single copy from pinned memory: the host doesn't wait for it.
std::vector<nn::Batch> to_device(std::span<const data::MicroBatch> micro_batches, const at::Device& device);
nn::Batch to_device(const data::MicroBatch& micro_batch, const at::Device& device);

}  // namespace lorikeet::train
