#pragma once

#include <ATen/core/Tensor.h>

#include <vector>

#include "ops/matmul/matmul.h"

namespace lorikeet::ops {

enum class NormKind {
  kRms,    ///< root mean square (Zhang and Sennrich 2019, arXiv:1910.07467)
  kLayer,  ///< layer norm (Ba et al. 2016, arXiv:1607.06450)
};

struct NormOptions {
  NormKind kind = NormKind::kRms;
  double eps = 1e-5;
  bool unit_offset = false;  ///< the scale is 1 + weight (Gemma)
};

/// The frozen scale and shift of a norm, of any floating dtype; neither gets a gradient.
struct NormParameters {
  at::Tensor weight;  ///< [D]
  at::Tensor bias;    ///< [D], or undefined
};

/// What backward needs beside the input: fp32, one a normed row. Undefined where the reference ran.
struct NormStatistics {
  at::Tensor mean;  ///< of layer norm alone
  at::Tensor rstd;  ///< 1 / sqrt(variance or mean square + eps)
};

/// Normalisation of every row:
///   kRms:   y = x / sqrt(mean(x^2) + eps) * weight
///   kLayer: y = (x - mean(x)) / sqrt(mean((x - mean(x))^2) + eps) * weight + bias
/// x: [T, D], or [T, H, D] with rows of D values whose heads lie next to each other (strides (any, D, 1)).
/// Returns a dense tensor of x's shape and dtype. Statistics and products are fp32 (fp64 for fp64 input),
/// rounded once. Fills `statistics` unless it is null. Throws Error on shapes that don't fit.
at::Tensor norm(const at::Tensor& x, const NormParameters& parameters, const NormOptions& options,
                NormStatistics* statistics = nullptr);

/// The same into `y`, which has x's shape, dtype and kind of strides.
void norm_out(at::Tensor& y, const at::Tensor& x, const NormParameters& parameters,
              const NormOptions& options, NormStatistics* statistics);

/// A residual stream's step: writes sum = residual + delta, rounded to their dtype, and returns norm(sum).
/// residual and delta: [T, D], of one dtype. `terms`, those that add_norm_adds takes, are added to delta as
/// it is read, in fp32, before the sum is rounded.
at::Tensor add_norm(const at::Tensor& residual, const at::Tensor& delta, const NormParameters& parameters,
                    const NormOptions& options, at::Tensor& sum, NormStatistics* statistics = nullptr,
                    const std::vector<LowRankTerm>& terms = {});

/// For LeftTerms::takes: whether low-rank terms of delta are added on the way: one that covers delta, of rank
/// 8 or 16, in 16 bits on a GPU with tensor cores, where there are 32 rows or more, up to 8,192 wide. The
/// residual has to be dense then, and to begin at a multiple of 16 bytes.
bool add_norm_adds(const at::Tensor& delta, const std::vector<LowRankTerm>& terms);

/// dx = (d norm(x) / dx)^T dy + extra for the x and statistics of forward. dy: x's shape; extra: the same, or
/// undefined for none. Returns a dense tensor of x's shape. `again`, unless it is null, gets forward's result
/// once more, in the same pass over memory.
at::Tensor norm_backward(const at::Tensor& dy, const at::Tensor& extra, const at::Tensor& x,
                         const NormParameters& parameters, const NormOptions& options,
                         const NormStatistics& statistics, at::Tensor* again = nullptr);

/// The same, without extra, into `dy`, which may have the strides that x may have.
void norm_backward_(at::Tensor& dy, const at::Tensor& x, const NormParameters& parameters,
                    const NormOptions& options, const NormStatistics& statistics);

namespace reference {

/// norm by plain ATen calls, differentiable in x, on any device and in fp64.
at::Tensor norm(const at::Tensor& x, const NormParameters& parameters, const NormOptions& options);

}  // namespace reference
}  // namespace lorikeet::ops
