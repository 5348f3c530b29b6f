#pragma once

#include <cstdint>

#include "ops/activation/kind.h"
#include "ops/cuda_element.h"

// The activations on a GPU (activation.h), without libtorch. All pointers are dense device memory of one
// element type, `stream` is a cudaStream_t. One launch each (plain ones may have a second, of less than 16
// bytes), nothing where there are no elements; they throw Error when the launch fails, and always in a build
// without CUDA.
namespace lorikeet::ops {

/// out [rows, width] = the activation of gate_up [rows, 2 width] with rows [gate | up].
void launch_gated_forward(CudaElement element, Activation activation, const void* gate_up, std::int64_t rows,
                          std::int64_t width, void* out, void* stream);
/// Writes the gradients of gate and up over them. dy: [rows, width]. `again`, unless it is null, gets
/// forward's out.
void launch_gated_backward(CudaElement element, Activation activation, const void* dy, std::int64_t rows,
                           std::int64_t width, void* gate_up, void* again, void* stream);

/// out = act(x), `count` numbers, for a kind that is a function of one.
void launch_activation_forward(CudaElement element, Activation activation, const void* x, std::int64_t count,
                               void* out, void* stream);
/// Writes the gradient of x over it; `again` as above.
void launch_activation_backward(CudaElement element, Activation activation, const void* dy,
                                std::int64_t count, void* x, void* again, void* stream);

}  // namespace lorikeet::ops
