#pragma once

namespace lorikeet::ops {

/// The numbers of a step of AdamW (Loshchilov & Hutter 2019).
struct AdamWStep {
  double lr, beta1, beta2, eps, weight_decay;
  double clip_grad_norm;  ///< 0: no clipping
  double gradient_scale;  ///< what gradients come multiplied by
};

}  // namespace lorikeet::ops
