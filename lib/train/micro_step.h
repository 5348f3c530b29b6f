#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

#include "config/memory_saving.h"
#include "nn/causal_lm.h"
#include "parallel/gradient_reducer.h"
#include "train/kept_layers.h"

namespace lorikeet::train {

struct MicroStepOptions {
  double loss_scale = 1;        ///< of the gradients, not of the loss that is returned
  std::uint64_t step = 0;       ///< optimizer step, keys dropout
  config::MemorySaving saving;  ///< offloaded weights come by the model's lender
  /// Where `saving` offloads activations: the run's way to do it; nullptr: one of this micro-batch's own.
  ActivationOffload* offload = nullptr;
  /// Learns of each layer whose gradients are complete. Set for the last micro-batch of a step, else nullptr.
  parallel::GradientReducer* reducer = nullptr;
};

/// Forward and backward of one micro-batch: adds its adapters' gradients to what is there, and returns the
/// sum of its labels' negative log-likelihoods, a scalar on the device in the policy's loss dtype.
///
/// However memory is saved, the numbers are the same to the bit.
at::Tensor run_micro_step(const nn::CausalLM& model, const nn::Batch& batch, const MicroStepOptions& options);

}  // namespace lorikeet::train
