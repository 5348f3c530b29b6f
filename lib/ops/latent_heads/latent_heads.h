#pragma once

#include <ATen/core/Tensor.h>

#include "ops/head_gradients.h"
#include "ops/latent_heads/latent_layout.h"

namespace lorikeet::ops {

/// What latent attention's heads are made of. Elements of rows are dense, rows any distance apart.
struct LatentParts {
  at::Tensor q;           ///< [T, H (plain + rotary)], of each head [plain | to be rotated]
  at::Tensor kv;          ///< [T, H (plain + value)], of each head [plain key | value]
  at::Tensor shared_key;  ///< [T, rotary], the part of every head's key that is to be rotated
};

/// The packed rows [T, q heads | k heads | v heads] that attention reads (layout.padded()): rotated parts
/// rotated as by `rotate`, in fp32 (fp64 for fp64), the shared one repeated for every head, and each head
/// filled up by zeros where keys or values are narrower than it. parts: floating, of one dtype. cos, sin:
/// [T, rotary / 2] fp32 (fp64 with fp64 parts). Throws Error on shapes that don't fit.
at::Tensor latent_heads(const LatentParts& parts, const at::Tensor& cos, const at::Tensor& sin,
                        const LatentLayout& layout);

/// Writes the gradients of the parts into `out`, tensors shaped as in forward, from those of the packed rows,
/// of which what was filled up is not read. That of the shared key is the sum over heads, in fp32 (fp64),
/// rounded once.
void latent_heads_backward(const HeadGradients& gradients, const at::Tensor& cos, const at::Tensor& sin,
                           const LatentLayout& layout, const LatentParts& out);

namespace reference {

/// latent_heads by plain ATen calls, differentiable in the parts, on any device and in fp64.
at::Tensor latent_heads(const LatentParts& parts, const at::Tensor& cos, const at::Tensor& sin,
                        const LatentLayout& layout);

}  // namespace reference
}  // namespace lorikeet::ops
