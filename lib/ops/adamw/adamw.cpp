#include "ops/adamw/adamw.h"

#include <ATen/ATen.h>

#include "ops/adamw/adamw_cuda.h"
#include "ops/cuda_launch.h"

namespace lorikeet::ops {
namespace {

bool has_kernel(const AdamWState& state) {
  if (!state.parts.empty() || state.statistics != at::kFloat || !has_cuda_elements(state.compute))
    return false;
  for (const at::Tensor* tensor :
       {&state.values, &state.gradients, &state.exp_avg, &state.exp_avg_sq, &state.updates}) {
    if (tensor->scalar_type() != at::kFloat) return false;
  }
  return true;
}

at::Tensor kernel_step(const AdamWState& state, const AdamWStep& step) {
  const auto floats = state.values.options();
  const at::Tensor norm = at::empty({}, floats);
  const at::Tensor partial_sums = at::empty({kAdamWPartialSums}, floats);
  const at::Tensor scalars = at::empty({kAdamWScalars}, floats);
  const bool has_copy = !state.compute.is_alias_of(state.values);
  launch_on_device_of(state.values, [&](void* stream) {
    const AdamWOnDevice in{.values = state.values.mutable_data_ptr<float>(),
                           .gradients = state.gradients.mutable_data_ptr<float>(),
                           .exp_avg = state.exp_avg.mutable_data_ptr<float>(),
                           .exp_avg_sq = state.exp_avg_sq.mutable_data_ptr<float>(),
                           .updates = state.updates.mutable_data_ptr<float>(),
                           .compute = has_copy ? state.compute.mutable_data_ptr() : nullptr,
                           .n = state.values.numel(),
                           .partial_sums = partial_sums.mutable_data_ptr<float>(),
                           .scalars = scalars.mutable_data_ptr<float>(),
                           .norm = norm.mutable_data_ptr<float>()};
    launch_adamw(cuda_element(state.compute), in, step, stream);
  });
  return norm;
}

}  // namespace

at::Tensor adamw_step(AdamWState& state, const AdamWStep& step) {
  if (has_kernel(state)) return kernel_step(state, step);
  if (step.gradient_scale != 1) state.gradients.mul_(1 / step.gradient_scale);
  at::Tensor norm = at::norm(state.gradients, 2, state.statistics);
  const at::Tensor found_inf = norm.isfinite().logical_not().to(state.updates.scalar_type());
  if (step.clip_grad_norm > 0) {
    // torch.nn.utils.clip_grad_norm_'s formula, its 1e-6 included.
    state.gradients.mul_((step.clip_grad_norm / (norm + 1e-6)).clamp_max(1.0));
  }
  state.updates.add_(1 - found_inf);
  const auto update = [&](const AdamWPart& part) {
    const std::vector<at::Tensor> updates(part.values.size(), state.updates);
    at::_fused_adamw_(part.values, part.gradients, part.exp_avg, part.exp_avg_sq, {}, updates,
                      step.lr * part.lr_ratio, step.beta1, step.beta2, step.weight_decay, step.eps,
                      /*amsgrad=*/false, /*maximize=*/false,
                      /*grad_scale=*/{}, found_inf);
  };
  for (const AdamWPart& part : state.parts) update(part);
  if (state.parts.empty()) {
    update({.values = {state.values},
            .gradients = {state.gradients},
            .exp_avg = {state.exp_avg},
            .exp_avg_sq = {state.exp_avg_sq}});
  }
  if (!state.compute.is_alias_of(state.values)) state.compute.copy_(state.values);
  state.gradients.zero_();
  return norm;
}

}  // namespace lorikeet::ops
