#include "ops/gated_norm/gated_norm.h"

#include <ATen/ATen.h>

#include "ops/check.h"
#include "ops/gated_norm/cpu.h"
#include "ops/gated_norm/gated_norm_cuda.h"
#include "ops/reference_backward.h"
#include "ops/row_layout.h"
#include "ops/vector.h"

namespace lorikeet::ops {
namespace {

constexpr const char* kOp = "gated_norm";

void check_input(const at::Tensor& x, const at::Tensor& z, const at::Tensor& weight) {
  check_tensor(weight.defined() && weight.dim() == 1 && weight.numel() > 0, kOp, "a weight [head]", weight);
  check_tensor(x.defined() && x.dim() == 2 && x.is_floating_point() && x.is_contiguous() &&
                   x.size(1) % weight.numel() == 0,
               kOp, "a dense floating matrix of whole heads", x);
  check_tensor(z.defined() && z.sizes() == x.sizes() && z.scalar_type() == x.scalar_type(), kOp,
               "a gate of the input's shape and type", z);
}

// Whether the CPU's kernels take a matrix like x with these rows.
bool fits_on_cpu(const at::Tensor& rows, const at::Tensor& x, const at::Tensor& weight) {
  return vector::has_fast_elements(x) && has_dense_rows_like(rows, x) &&
         weight.numel() <= cpu::kMostGatedNormHead;
}

// Whether our CUDA kernels take such a matrix.
bool fits_on_cuda(const at::Tensor& rows, const at::Tensor& x, const at::Tensor& weight) {
  return has_cuda_elements(x) && has_dense_rows_like(rows, x) && rows_are_aligned(rows) &&
         rows_are_aligned(x) && gated_norm_kernel_fits(cuda_element(x), weight.numel()) &&
         weight.is_contiguous() && is_aligned(weight);
}

at::Tensor wide(const at::Tensor& weight) { return weight.to(at::kFloat).contiguous(); }

GatedNormOnDevice on_device(const at::Tensor& x, const at::Tensor& z, const at::Tensor& weight, double eps) {
  return {.rows = x.size(0),
          .heads = x.size(1) / weight.numel(),
          .head_dim = weight.numel(),
          .x = x.const_data_ptr(),
          .z = z.const_data_ptr(),
          .z_row = z.stride(0),
          .weight = weight.const_data_ptr(),
          .is_fp32 = weight.scalar_type() == at::kFloat,
          .eps = static_cast<float>(eps)};
}

}  // namespace

at::Tensor gated_norm(const at::Tensor& x, const at::Tensor& z, const at::Tensor& given_weight, double eps) {
  check_input(x, z, given_weight);
  const at::Tensor weight = readable_beside(x, given_weight);
  const bool on_cpu = fits_on_cpu(z, x, weight);
  if (!on_cpu && !fits_on_cuda(z, x, weight)) return reference::gated_norm(x, z, weight, eps);
  const at::Tensor y = at::empty(x.sizes(), x.options());
  if (on_cpu) {
    cpu::gated_norm(x, z, wide(weight), eps, y);
  } else {
    launch_on_device_of(x, [&](void* stream) {
      launch_gated_norm(cuda_element(x), on_device(x, z, weight, eps), y.mutable_data_ptr(), stream);
    });
  }
  return y;
}

void gated_norm_backward_(const at::Tensor& dy, const at::Tensor& x, const at::Tensor& z,
                          const at::Tensor& given_weight, double eps, const at::Tensor& dz, at::Tensor* y) {
  check_input(x, z, given_weight);
  const at::Tensor weight = readable_beside(x, given_weight);
  check_tensor(dy.sizes() == x.sizes() && dy.scalar_type() == x.scalar_type() && dy.is_contiguous(), kOp,
               "a dense gradient of the result, of its type", dy);
  check_tensor(dz.sizes() == x.sizes(), kOp, "a matrix for the gate's gradient", dz);
  const bool on_cpu = fits_on_cpu(z, x, weight) && fits_on_cpu(dz, x, weight);
  const bool on_cuda = fits_on_cuda(z, x, weight) && fits_on_cuda(dz, x, weight) && rows_are_aligned(dy);
  if (on_cpu || on_cuda) {
    if (y != nullptr) *y = at::empty(x.sizes(), x.options());
    if (on_cpu) {
      cpu::gated_norm_backward(dy, x, z, wide(weight), eps, dz, y != nullptr ? *y : at::Tensor());
      return;
    }
    launch_on_device_of(x, [&](void* stream) {
      launch_gated_norm_backward(cuda_element(x), on_device(x, z, weight, eps), dy.mutable_data_ptr(),
                                 dz.mutable_data_ptr(), dz.stride(0),
                                 y != nullptr ? y->mutable_data_ptr() : nullptr, stream);
    });
    return;
  }
  if (y != nullptr) *y = reference::gated_norm(x, z, weight, eps);
  const std::int64_t width = x.size(1);
  const at::Tensor both = reference_backward(
      [&](const at::Tensor& leaf) {
        return reference::gated_norm(leaf.narrow(1, 0, width), leaf.slice(1, width), weight, eps);
      },
      at::cat({x, z}, 1), dy);
  dy.copy_(both.narrow(1, 0, width));
  dz.copy_(both.slice(1, width));
}

}  // namespace lorikeet::ops
