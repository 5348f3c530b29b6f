#pragma once

#include <ATen/core/Tensor.h>

#include "ops/latent_heads/latent_heads.h"

namespace lorikeet::ops::cpu {

/// As ops::latent_heads for fp32 or bf16. cos, sin: fp32, dense. packed: dense.
void latent_heads(const LatentParts& parts, const at::Tensor& cos, const at::Tensor& sin,
                  const LatentLayout& layout, const at::Tensor& packed);

/// As ops::latent_heads_backward. dpacked: [T, layout.padded().width()], dense.
void latent_heads_backward(const at::Tensor& dpacked, const at::Tensor& cos, const at::Tensor& sin,
                           const LatentLayout& layout, const LatentParts& out);

}  // namespace lorikeet::ops::cpu
