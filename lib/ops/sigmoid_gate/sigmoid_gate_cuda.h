#pragma once

#include <cstdint>

#include "ops/cuda_element.h"

// The sigmoid gate on a GPU (sigmoid_gate.h), without libtorch. All pointers are device memory, rows aligned
// to 16 bytes.
namespace lorikeet::ops {

struct SigmoidGateOnDevice {
  std::int64_t rows, width;
  const void* x;          ///< [rows, width], dense
  const void* gate;       ///< of x's shape
  std::int64_t gate_row;  ///< elements from one of its rows to the next
};

/// Whether the kernels take rows of this width: whole accesses of 16 bytes.
constexpr bool sigmoid_gate_kernel_fits(CudaElement element, std::int64_t width) {
  return width % (element == CudaElement::kF32 ? 4 : 8) == 0;
}

/// One launch each; nothing where there are no elements. y: dense. `stream` is a cudaStream_t. They throw
/// Error when the launch fails, and always in a build without CUDA.
void launch_sigmoid_gate(CudaElement element, const SigmoidGateOnDevice& in, void* y, void* stream);
/// Writes x's gradient over dy, dense, and the gate's into dgate, rows `dgate_row` elements apart, which may
/// be the gate. `again`, unless it is null, gets forward's y.
void launch_sigmoid_gate_backward(CudaElement element, const SigmoidGateOnDevice& in, void* dy, void* dgate,
                                  std::int64_t dgate_row, void* again, void* stream);

}  // namespace lorikeet::ops
