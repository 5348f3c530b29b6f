#pragma once

#include <cstdint>

#include "ops/cuda_element.h"
#include "ops/lora/dropout_bits.h"

namespace lorikeet::ops {

/// out = x * mask / (1 - p) on the device, for x and out [rows, features] dense of one element type; the ids
/// are device arrays of `rows`. `stream` is a cudaStream_t. Throws Error when the launch fails, and always in
/// a build without CUDA.
void launch_dropout(CudaElement element, const void* x, void* out, std::int64_t rows, std::int64_t features,
                    const std::int64_t* sample_ids, const std::int64_t* position_ids, const DropoutKey& key,
                    void* stream);

}  // namespace lorikeet::ops
