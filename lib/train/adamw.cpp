#include "train/adamw.h"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>

#include "ops/dtype.h"

namespace lorikeet::train {

AdamW::AdamW(peft::AdapterStore& store, const AdamWOptions& options) : store_(store), options_(options) {
  const auto state = store.values().options().dtype(ops::to_torch(store.policy().optimizer_state));
  exp_avg_ = at::zeros({store.numel()}, state);
  exp_avg_sq_ = at::zeros({store.numel()}, state);
  updates_ = at::zeros({}, state.dtype(ops::to_torch(precision::Policy::kCount)));
}

at::Tensor AdamW::step(double lr, double gradient_scale) {
  const at::NoGradGuard no_grad;
  at::Tensor gradients = store_.gradients();
  if (gradient_scale != 1) gradients.mul_(1 / gradient_scale);
  const at::Tensor norm = at::norm(gradients, 2, ops::to_torch(store_.policy().statistics));
  const at::Tensor found_inf = norm.isfinite().logical_not().to(updates_.scalar_type());
  if (options_.clip_grad_norm > 0) {
    // torch.nn.utils.clip_grad_norm_'s formula, its 1e-6 included.
    gradients.mul_((options_.clip_grad_norm / (norm + 1e-6)).clamp_max(1.0));
  }
  updates_.add_(1 - found_inf);
  at::_fused_adamw_({store_.values()}, {gradients}, {exp_avg_}, {exp_avg_sq_}, {}, {updates_}, lr,
                    options_.beta1, options_.beta2, options_.weight_decay, options_.eps, /*amsgrad=*/false,
                    /*maximize=*/false,
                    /*grad_scale=*/{}, found_inf);
  store_.refresh_compute();
  gradients.zero_();
  return norm;
}

}  // namespace lorikeet::train
