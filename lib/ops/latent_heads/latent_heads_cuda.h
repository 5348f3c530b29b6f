#pragma once

#include <cstdint>

#include "ops/cuda_element.h"
#include "ops/head_layout.h"
#include "ops/latent_heads/latent_layout.h"

// Latent attention's heads on a GPU (latent_heads.h), without libtorch. All pointers are device memory.
namespace lorikeet::ops {

/// Parts of latent heads; rows begin `q_row`, `kv_row`, `shared_row` elements apart.
template <typename Pointer>
struct LatentPartsOnDevice {
  Pointer q, kv, shared_key;
  std::int64_t q_row, kv_row, shared_row;
};

/// One launch each, in accesses of 16 bytes where all rows and parts of heads begin at them; nothing where
/// there are no rows. cos, sin: dense. packed: dense. `stream` is a cudaStream_t. They throw Error when the
/// launch fails, and always in a build without CUDA.
void launch_latent_heads(CudaElement element, const LatentPartsOnDevice<const void*>& parts, const float* cos,
                         const float* sin, std::int64_t rows, const LatentLayout& layout, void* packed,
                         void* stream);
void launch_latent_heads_backward(CudaElement element, const HeadsOnDevice& gradients, const float* cos,
                                  const float* sin, std::int64_t rows, const LatentLayout& layout,
                                  const LatentPartsOnDevice<void*>& out, void* stream);

}  // namespace lorikeet::ops
