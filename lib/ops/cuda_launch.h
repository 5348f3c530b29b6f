#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/DeviceGuard.h>

#include "ops/cuda_element.h"
#include "ops/dry_run.h"
#include "ops/reference_ops.h"

// What operators share that have CUDA kernels of ours.
namespace lorikeet::ops {

/// Whether our CUDA kernels take the elements of `tensor`: fp32, bf16 or fp16 on a GPU, or dry for one,
/// unless references were asked for.
inline bool has_cuda_elements(const at::Tensor& tensor) {
  return !reference_ops() && kernels_of(tensor) == at::kCUDA &&
         (tensor.scalar_type() == at::kFloat || at::isReducedFloatingType(tensor.scalar_type()));
}

/// The element type of a tensor for which has_cuda_elements holds.
inline CudaElement cuda_element(const at::Tensor& tensor) {
  switch (tensor.scalar_type()) {
    case at::kHalf: return CudaElement::kF16;
    case at::kBFloat16: return CudaElement::kBF16;
    default: return CudaElement::kF32;
  }
}

/// Whether a tensor on a GPU, or dry for one, begins at a multiple of 16 bytes, as a device's memory does.
inline bool is_aligned(const at::Tensor& tensor) {
  return tensor.storage_offset() * static_cast<std::int64_t>(tensor.element_size()) % 16 == 0;
}

/// The same values at such a place; an undefined tensor stays one.
inline at::Tensor aligned(const at::Tensor& tensor) {
  return tensor.defined() && !is_aligned(tensor) ? tensor.clone() : tensor;
}

/// Calls launch(stream) with the current stream of the tensor's device, which is the current device
/// meanwhile; nothing where the tensor has no data.
template <typename Launch>
void launch_on_device_of(const at::Tensor& tensor, const Launch& launch) {
  if (tensor.is_meta()) return;
  const c10::OptionalDeviceGuard guard(tensor.device());
  launch(c10::impl::VirtualGuardImpl(at::kCUDA).getStream(tensor.device()).native_handle());
}

}  // namespace lorikeet::ops
