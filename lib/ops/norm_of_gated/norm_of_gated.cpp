#include "ops/norm_of_gated/norm_of_gated.h"

#include <ATen/ATen.h>

#include "ops/check.h"
#include "ops/norm_of_gated/cpu.h"
#include "ops/norm_of_gated/norm_of_gated_cuda.h"
#include "ops/reference_backward.h"
#include "ops/row_layout.h"
#include "ops/vector.h"

namespace lorikeet::ops {
namespace {

constexpr const char* kOp = "norm_of_gated";

void check_input(const at::Tensor& x, const at::Tensor& z, const at::Tensor& weight, std::int64_t groups) {
  check_tensor(x.defined() && x.dim() == 2 && x.is_floating_point() && x.is_contiguous() && groups > 0 &&
                   x.size(1) > 0 && x.size(1) % groups == 0,
               kOp, "a dense floating matrix of whole groups", x);
  check_tensor(z.defined() && z.sizes() == x.sizes() && z.scalar_type() == x.scalar_type(), kOp,
               "a gate of the input's shape and type", z);
  check_tensor(weight.defined() && weight.dim() == 1 && weight.numel() == x.size(1), kOp,
               "a weight [groups * group]", weight);
}

// Whether the CPU's kernels take a matrix like x with these rows.
bool fits_on_cpu(const at::Tensor& rows, const at::Tensor& x, std::int64_t groups) {
  return vector::has_fast_elements(x) && has_dense_rows_like(rows, x) &&
         x.size(1) / groups <= cpu::kMostNormOfGatedGroup;
}

// Whether our CUDA kernels take such a matrix.
bool fits_on_cuda(const at::Tensor& rows, const at::Tensor& x, const at::Tensor& weight,
                  std::int64_t groups) {
  return has_cuda_elements(x) && has_dense_rows_like(rows, x) && rows_are_aligned(rows) &&
         rows_are_aligned(x) && norm_of_gated_kernel_fits(cuda_element(x), x.size(1) / groups) &&
         weight.is_contiguous() && is_aligned(weight);
}

at::Tensor wide(const at::Tensor& weight) { return weight.to(at::kFloat).contiguous(); }

NormOfGatedOnDevice on_device(const at::Tensor& x, const at::Tensor& z, const at::Tensor& weight,
                              std::int64_t groups, double eps) {
  return {.rows = x.size(0),
          .groups = groups,
          .width = x.size(1) / groups,
          .x = x.const_data_ptr(),
          .z = z.const_data_ptr(),
          .z_row = z.stride(0),
          .weight = weight.const_data_ptr(),
          .is_fp32 = weight.scalar_type() == at::kFloat,
          .eps = static_cast<float>(eps)};
}

}  // namespace

at::Tensor norm_of_gated(const at::Tensor& x, const at::Tensor& z, const at::Tensor& given_weight,
                         std::int64_t groups, double eps) {
  check_input(x, z, given_weight, groups);
  const at::Tensor weight = readable_beside(x, given_weight);
  const bool on_cpu = fits_on_cpu(z, x, groups);
  if (!on_cpu && !fits_on_cuda(z, x, weight, groups))
    return reference::norm_of_gated(x, z, weight, groups, eps);
  const at::Tensor y = at::empty(x.sizes(), x.options());
  if (on_cpu) {
    cpu::norm_of_gated(x, z, wide(weight), groups, eps, y);
  } else {
    launch_on_device_of(x, [&](void* stream) {
      launch_norm_of_gated(cuda_element(x), on_device(x, z, weight, groups, eps), y.mutable_data_ptr(),
                           stream);
    });
  }
  return y;
}

void norm_of_gated_backward_(const at::Tensor& dy, const at::Tensor& x, const at::Tensor& z,
                             const at::Tensor& given_weight, std::int64_t groups, double eps,
                             const at::Tensor& dz, at::Tensor* y) {
  check_input(x, z, given_weight, groups);
  const at::Tensor weight = readable_beside(x, given_weight);
  check_tensor(dy.sizes() == x.sizes() && dy.scalar_type() == x.scalar_type() && dy.is_contiguous(), kOp,
               "a dense gradient of the result, of its type", dy);
  check_tensor(dz.sizes() == x.sizes() && dz.scalar_type() == x.scalar_type(), kOp,
               "a matrix for the gate's gradient", dz);
  const bool on_cpu = fits_on_cpu(z, x, groups) && fits_on_cpu(dz, x, groups);
  const bool on_cuda =
      fits_on_cuda(z, x, weight, groups) && fits_on_cuda(dz, x, weight, groups) && rows_are_aligned(dy);
  if (on_cpu || on_cuda) {
    if (y != nullptr) *y = at::empty(x.sizes(), x.options());
    if (on_cpu) {
      cpu::norm_of_gated_backward(dy, x, z, wide(weight), groups, eps, dz, y != nullptr ? *y : at::Tensor());
      return;
    }
    launch_on_device_of(x, [&](void* stream) {
      launch_norm_of_gated_backward(cuda_element(x), on_device(x, z, weight, groups, eps),
                                    dy.mutable_data_ptr(), dz.mutable_data_ptr(), dz.stride(0),
                                    y != nullptr ? y->mutable_data_ptr() : nullptr, stream);
    });
    return;
  }
  if (y != nullptr) *y = reference::norm_of_gated(x, z, weight, groups, eps);
  const std::int64_t width = x.size(1);
  const at::Tensor both = reference_backward(
      [&](const at::Tensor& leaf) {
        return reference::norm_of_gated(leaf.narrow(1, 0, width), leaf.slice(1, width), weight, groups, eps);
      },
      at::cat({x, z}, 1), dy);
  dy.copy_(both.narrow(1, 0, width));
  dz.copy_(both.slice(1, width));
}

}  // namespace lorikeet::ops
