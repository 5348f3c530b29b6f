#pragma once

#include <cstdint>

#include "ops/cuda_element.h"

// What flows back into a group's low-rank updates on a GPU (lora_linear.h), without libtorch.
namespace lorikeet::ops {

/// Updates of one rank in a group whose output's gradient is dy: of projection i the columns [begin[i],
/// begin[i] + width[i]) of dy, rank columns of u and du, and width[i] rows of b and grad_b, all in order. All
/// pointers are device memory, those of 16 bits aligned to 16 bytes.
struct LowRankGradients {
  static constexpr int kMostProjections = 3;

  int projections;
  std::int64_t begin[kMostProjections], width[kMostProjections];
  std::int64_t tokens, rank;
  const void* dy;       ///< [tokens, dy_row] of the element type
  std::int64_t dy_row;  ///< elements from one row to the next
  const void* u;        ///< [tokens, projections * rank], x a^T
  const void* b;        ///< [sum of width, rank]
  void* du;             ///< [tokens, projections * rank]: dy b is written here
  float* grad_b;        ///< [sum of width, rank]: scale dy^T u is added here
  double scale;

  std::int64_t columns() const {
    std::int64_t sum = 0;
    for (int i = 0; i < projections; ++i) sum += width[i];
    return sum;
  }
};

/// One pass over dy for both products, by tensor cores (compute capability 8.0): sums are fp32, in an order
/// that depends on the shapes alone. Two launches; nothing without tokens. `element`: of 16 bits. `scratch`
/// is aligned to 16 bytes, `stream` a cudaStream_t. Throws Error when a launch fails, and always in a build
/// without CUDA.
void launch_low_rank_gradients(CudaElement element, const LowRankGradients& in, float* scratch, void* stream);

}  // namespace lorikeet::ops
