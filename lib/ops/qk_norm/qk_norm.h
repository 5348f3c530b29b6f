#pragma once

#include <ATen/core/Tensor.h>

#include "ops/head_gradients.h"
#include "ops/head_layout.h"
#include "ops/norm/norm.h"

namespace lorikeet::ops {

/// The norms of queries and keys (Dehghani et al. 2023, arXiv:2302.05442), each over every head (weights
/// [head_dim]: Qwen 3, Gemma 3) or over all heads at once ([heads * head_dim], [kv_heads * head_dim]: OLMo
/// 2).
struct QkNorms {
  NormParameters q, k;
  NormOptions q_options, k_options;
};

/// What backward needs beside the input.
struct QkNormStatistics {
  NormStatistics q, k;
};

/// The angles of each row, as rotate takes them; both undefined where nothing is rotated.
struct RotaryAngles {
  at::Tensor cos, sin;
};

/// A packed attention projection with its queries and keys normed (norm.h), rounded to qkv's dtype and then
/// rotated (rotary.h), and its values as they are. qkv: [T, layout.width()], floating, contiguous. Returns a
/// dense tensor of its shape and dtype. Fills `statistics` unless it is null. Throws Error on shapes that
/// don't fit.
at::Tensor norm_and_rotate(const at::Tensor& qkv, const QkNorms& norms, const RotaryAngles& angles,
                           const HeadLayout& layout, QkNormStatistics* statistics = nullptr);

/// The packed gradient of qkv from those of the result, which it may be written over, for the qkv and
/// statistics of forward.
at::Tensor norm_and_rotate_backward(HeadGradients gradients, const at::Tensor& qkv, const QkNorms& norms,
                                    const RotaryAngles& angles, const HeadLayout& layout,
                                    const QkNormStatistics& statistics);

namespace reference {

/// norm_and_rotate by plain ATen calls, differentiable in qkv, on any device and in fp64.
at::Tensor norm_and_rotate(const at::Tensor& qkv, const QkNorms& norms, const RotaryAngles& angles,
                           const HeadLayout& layout);

}  // namespace reference
}  // namespace lorikeet::ops
