#pragma once

#include <cstdint>

#include "ops/cuda_element.h"
#include "ops/quantized/parts.h"

namespace lorikeet::ops {

/// The numbers [first, first + count) of each quantised tensor of a stack in device memory, to `out` there.
/// `parts`: the first tensor's. `stream` is a cudaStream_t. Throws Error when the launch fails, and always in
/// a build without CUDA.
void launch_dequantize(const QuantizedParts& parts, const QuantizedStack& stack, std::int64_t first,
                       std::int64_t count, CudaElement element, void* out, void* stream);

}  // namespace lorikeet::ops
