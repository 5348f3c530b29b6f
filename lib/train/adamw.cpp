#include "train/adamw.h"

#include <ATen/ATen.h>

#include "ops/dtype.h"

namespace lorikeet::train {

AdamW::AdamW(peft::AdapterStore& store, const AdamWOptions& options) : store_(store), options_(options) {
  const auto state = store.values().options().dtype(ops::to_torch(store.policy().optimizer_state));
  exp_avg_ = at::zeros({store.numel()}, state);
  exp_avg_sq_ = at::zeros({store.numel()}, state);
  updates_ = at::zeros({}, state.dtype(ops::to_torch(precision::Policy::kCount)));
  if (options_.loraplus_lr_ratio == 1) {
    parts_.push_back({1, {store.values()}, {store.gradients()}, {exp_avg_}, {exp_avg_sq_}, {updates_}});
    return;
  }
  parts_ = {{.lr_ratio = 1}, {.lr_ratio = options_.loraplus_lr_ratio}};
  for (std::size_t i = 0; i < store.size(); ++i) {
    const peft::AdapterSegment& segment = store.segment(i);
    if (segment.frozen) continue;
    Part& part = parts_[segment.name.ends_with(".lora_B.weight") ? 1 : 0];
    const auto add = [&](std::vector<at::Tensor>& views, const at::Tensor& flat) {
      views.push_back(flat.narrow(0, segment.offset, segment.size()));
    };
    add(part.values, store.values());
    add(part.gradients, store.gradients());
    add(part.exp_avg, exp_avg_);
    add(part.exp_avg_sq, exp_avg_sq_);
    part.updates.push_back(updates_);
  }
  std::erase_if(parts_, [](const Part& part) { return part.values.empty(); });
}

at::Tensor AdamW::step(double lr, double gradient_scale) {
  at::Tensor gradients = store_.gradients();
  if (gradient_scale != 1) gradients.mul_(1 / gradient_scale);
  const at::Tensor norm = at::norm(gradients, 2, ops::to_torch(store_.policy().statistics));
  const at::Tensor found_inf = norm.isfinite().logical_not().to(updates_.scalar_type());
  if (options_.clip_grad_norm > 0) {
    // torch.nn.utils.clip_grad_norm_'s formula, its 1e-6 included.
    gradients.mul_((options_.clip_grad_norm / (norm + 1e-6)).clamp_max(1.0));
  }
  updates_.add_(1 - found_inf);
  for (const Part& part : parts_) {
    at::_fused_adamw_(part.values, part.gradients, part.exp_avg, part.exp_avg_sq, {}, part.updates,
                      lr * part.lr_ratio, options_.beta1, options_.beta2, options_.weight_decay, options_.eps,
                      /*amsgrad=*/false, /*maximize=*/false,
                      /*grad_scale=*/{}, found_inf);
  }
  store_.refresh_compute();
  gradients.zero_();
  return norm;
}

}  // namespace lorikeet::train
