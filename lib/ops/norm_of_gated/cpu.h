#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

namespace lorikeet::ops::cpu {

/// The widest group that the kernels take: they keep numbers of one on the stack.
inline constexpr std::int64_t kMostNormOfGatedGroup = 16384;

/// As ops::norm_of_gated for fp32 or bf16 x, z and y. weight: fp32, dense; elements of z's rows are dense.
void norm_of_gated(const at::Tensor& x, const at::Tensor& z, const at::Tensor& weight, std::int64_t groups,
                   double eps, const at::Tensor& y);

/// As ops::norm_of_gated_backward_, with such a weight. dz may be z; `y`, dense, may be undefined.
void norm_of_gated_backward(const at::Tensor& dy, const at::Tensor& x, const at::Tensor& z,
                            const at::Tensor& weight, std::int64_t groups, double eps, const at::Tensor& dz,
                            const at::Tensor& y);

}  // namespace lorikeet::ops::cpu
