#pragma once

#include <ATen/core/Tensor.h>

#include <vector>

#include "ops/adamw/adamw_step.h"

namespace lorikeet::ops {

/// Views of the state's tensors that share a learning rate.
struct AdamWPart {
  double lr_ratio = 1;  ///< theirs over the step's
  std::vector<at::Tensor> values, gradients, exp_avg, exp_avg_sq;
};

/// What AdamW (Loshchilov & Hutter 2019) works on: flat tensors [n] of one device.
struct AdamWState {
  at::Tensor values, gradients, exp_avg, exp_avg_sq;
  at::Tensor updates;                      ///< how many were made, a scalar
  at::Tensor compute;                      ///< a copy of the values in the compute dtype, or `values` itself
  std::vector<AdamWPart> parts = {};       ///< of all elements; none: all have the step's learning rate
  at::ScalarType statistics = at::kFloat;  ///< dtype of the gradients' norm
};

/// Divides the gradients by their scale, clips them to the global norm as torch.nn.utils.clip_grad_norm_
/// does, updates moments, values and their compute copy as PyTorch's AdamW, and zeroes the gradients; nothing
/// but the last where the norm isn't finite, which is decided on the device: the host need not wait. Returns
/// the norm before clipping, a scalar on the device. On a GPU three launches where all is fp32 (the compute
/// copy may be bf16 or fp16) and there are no parts.
at::Tensor adamw_step(AdamWState& state, const AdamWStep& step);

}  // namespace lorikeet::ops
