#pragma once

#include <ATen/core/Tensor.h>

#include <map>
#include <string>

#include "peft/lora.h"

namespace lorikeet::peft {

/// What merging adds to the checkpoint: scale * B A of each adapted weight, by the weight's name there, on
/// the CPU in the adapter's dtype, rows in module order.
std::map<std::string, at::Tensor> weight_updates(const LoraAdapters& adapters);

}  // namespace lorikeet::peft
