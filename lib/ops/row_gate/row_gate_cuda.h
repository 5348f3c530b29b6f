#pragma once

#include <cstdint>

#include "ops/cuda_element.h"

// The gate of rows on a GPU (row_gate.h), without libtorch. All pointers are device memory; rows of x and y
// begin at multiples of 16 bytes.
namespace lorikeet::ops {

struct RowGateOnDevice {
  std::int64_t rows, width;
  const void* x;     ///< [rows, width], dense
  const void* gate;  ///< [rows]
};

/// Whether the kernel takes rows of this width: whole accesses of 16 bytes.
constexpr bool row_gate_kernel_fits(CudaElement element, std::int64_t width) {
  return width % (element == CudaElement::kF32 ? 4 : 8) == 0;
}

/// One launch; nothing where there are no elements. y, dense, becomes sigmoid(gate) * x, or, with `add`, that
/// plus y. `stream` is a cudaStream_t. Throws Error when the launch fails, and always in a build without
/// CUDA.
void launch_row_gate(CudaElement element, const RowGateOnDevice& in, void* y, bool add, void* stream);

}  // namespace lorikeet::ops
