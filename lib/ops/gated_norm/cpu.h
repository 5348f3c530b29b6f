#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

namespace lorikeet::ops::cpu {

/// The widest head that the kernels take: they keep numbers of one on the stack.
inline constexpr std::int64_t kMostGatedNormHead = 1024;

/// As ops::gated_norm for fp32 or bf16 x, z and y. weight: fp32 [D], dense; elements of z's rows are dense.
void gated_norm(const at::Tensor& x, const at::Tensor& z, const at::Tensor& weight, double eps,
                const at::Tensor& y);

/// As ops::gated_norm_backward_, with such a weight. dz may be z; `y`, dense, may be undefined.
void gated_norm_backward(const at::Tensor& dy, const at::Tensor& x, const at::Tensor& z,
                         const at::Tensor& weight, double eps, const at::Tensor& dz, const at::Tensor& y);

}  // namespace lorikeet::ops::cpu
