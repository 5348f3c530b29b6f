#pragma once

namespace lorikeet::ops {

/// The element types that our CUDA kernels compute on; sums and products in them are fp32.
enum class CudaElement { kF32, kF16, kBF16 };

}  // namespace lorikeet::ops
