#include "train/adamw.h"

#include <ATen/ATen.h>

#include <utility>

#include "ops/dtype.h"

namespace lorikeet::train {

AdamW::AdamW(peft::AdapterStore& store, const AdamWOptions& options) : store_(store), options_(options) {
  const auto state = store.values().options().dtype(ops::to_torch(store.policy().optimizer_state));
  state_ = {.values = store.values(),
            .gradients = store.gradients(),
            .exp_avg = at::zeros({store.numel()}, state),
            .exp_avg_sq = at::zeros({store.numel()}, state),
            .updates = at::zeros({}, state.dtype(ops::to_torch(precision::Policy::kCount))),
            .compute = store.compute_values(),
            .statistics = ops::to_torch(store.policy().statistics)};
  if (options_.loraplus_lr_ratio == 1) return;
  std::vector<ops::AdamWPart> parts(2);
  parts[1].lr_ratio = options_.loraplus_lr_ratio;
  for (std::size_t i = 0; i < store.size(); ++i) {
    const peft::AdapterSegment& segment = store.segment(i);
    if (segment.frozen) continue;
    ops::AdamWPart& part = parts[segment.name.ends_with(".lora_B.weight") ? 1 : 0];
    const auto add = [&](std::vector<at::Tensor>& views, const at::Tensor& flat) {
      views.push_back(flat.narrow(0, segment.offset, segment.size()));
    };
    add(part.values, state_.values);
    add(part.gradients, state_.gradients);
    add(part.exp_avg, state_.exp_avg);
    add(part.exp_avg_sq, state_.exp_avg_sq);
  }
  std::erase_if(parts, [](const ops::AdamWPart& part) { return part.values.empty(); });
  state_.parts = std::move(parts);
}

at::Tensor AdamW::step(double lr, double gradient_scale) {
  at::Tensor norm = ops::adamw_step(state_, {.lr = lr,
                                             .beta1 = options_.beta1,
                                             .beta2 = options_.beta2,
                                             .eps = options_.eps,
                                             .weight_decay = options_.weight_decay,
                                             .clip_grad_norm = options_.clip_grad_norm,
                                             .gradient_scale = gradient_scale});
  store_.compute_was_refreshed();
  return norm;
}

}  // namespace lorikeet::train
