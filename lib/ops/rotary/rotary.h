#pragma once

#include <ATen/core/Tensor.h>

#include <vector>

#include "ops/head_gradients.h"
#include "ops/head_layout.h"
#include "ops/matmul/matmul.h"

namespace lorikeet::ops {

/// Rotary position embedding (Su et al. 2021, arXiv:2104.09864), in place on the packed projection output.
/// For every query and key head, with i < R/2 and Hugging Face's half layout, where a = i and b = i + R/2, or
/// an interleaved one, where a = 2i and b = 2i + 1:
///   y[a] = x[a] cos[i] - x[b] sin[i],   y[b] = x[b] cos[i] + x[a] sin[i];
/// dimensions from R on, and the value heads, stay.
/// qkv: [T, (H + 2 Hkv) D], floating, contiguous. cos, sin: [T, R/2] fp32 (fp64 with fp64 qkv), R <= D even,
/// the angles of each row's position (any attention scaling multiplied in). Throws Error on shapes that don't
/// fit.
/// `terms`, those that rotate_adds takes, are added to queries, keys and values in fp32 on the way.
void rotate(at::Tensor& qkv, const at::Tensor& cos, const at::Tensor& sin, const HeadLayout& layout,
            const std::vector<LowRankTerm>& terms = {});

/// For LeftTerms::takes: whether low-rank terms of qkv are added as it is rotated by angles like `cos`: in 16
/// bits on a GPU with tensor cores, where their ranks are 8 or 16 and each covers queries, keys, values or
/// several of them, of heads that are rotated as a whole, in halves of a multiple of 32, not interleaved.
bool rotate_adds(const at::Tensor& qkv, const at::Tensor& cos, const HeadLayout& layout,
                 const std::vector<LowRankTerm>& terms);

/// The packed gradient [T, (H + 2 Hkv) D] of what was rotated, from those of the result, which it may be
/// written over.
at::Tensor rotate_backward(const HeadGradients& gradients, const at::Tensor& cos, const at::Tensor& sin,
                           const HeadLayout& layout);

namespace reference {

/// The same by plain ATen calls, out of place, differentiable in qkv, on any device and in fp64.
at::Tensor rotary(const at::Tensor& qkv, const at::Tensor& cos, const at::Tensor& sin,
                  const HeadLayout& layout);

}  // namespace reference
}  // namespace lorikeet::ops
