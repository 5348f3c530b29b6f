#pragma once

#include "data/micro_batch.h"
#include "nn/batch.h"

namespace lorikeet::train {

/// The tensors of a micro-batch on `device`.
nn::Batch to_device(const data::MicroBatch& micro, const at::Device& device);

}  // namespace lorikeet::train
