#pragma once

#include <ATen/core/Tensor.h>

#include <vector>

#include "ops/adamw/adamw.h"
#include "peft/adapter_store.h"

namespace lorikeet::train {

struct AdamWOptions {
  double beta1 = 0.9;
  double beta2 = 0.999;
  double eps = 1e-8;
  double weight_decay = 0.01;
  double clip_grad_norm = 0;     ///< 0: no clipping
  double loraplus_lr_ratio = 1;  ///< B's learning rate over that of all else (LoRA+, Hayou et al. 2024)
};

/// AdamW (Loshchilov & Hutter 2019) as PyTorch computes it, over the flat buffers of an adapter store.
class AdamW {
 public:
  AdamW(peft::AdapterStore& store, const AdamWOptions& options);

  /// Divides the gradient by `gradient_scale`, clips it to the global norm, updates the values and their
  /// compute copy, zeroes the gradient. Returns the gradient's norm before clipping (a scalar on the device,
  /// in the policy's dtype for statistics). A norm that is not finite makes the whole step a no-op, decided
  /// on the device: the host need not wait for it.
  at::Tensor step(double lr, double gradient_scale = 1);

  /// Moments, flat in the store's layout, and the number of updates made (a scalar).
  const at::Tensor& exp_avg() const { return state_.exp_avg; }
  const at::Tensor& exp_avg_sq() const { return state_.exp_avg_sq; }
  const at::Tensor& updates() const { return state_.updates; }
  /// All of them, to be copied between devices.
  std::vector<at::Tensor> state() const { return {exp_avg(), exp_avg_sq(), updates()}; }

 private:
  peft::AdapterStore& store_;
  AdamWOptions options_;
  ops::AdamWState state_;
};

}  // namespace lorikeet::train
