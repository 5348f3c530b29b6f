#pragma once

#include <cstdint>

#include "ops/adamw/adamw_step.h"
#include "ops/cuda_element.h"

// AdamW on a GPU (adamw.h), without libtorch. All pointers are device memory.
namespace lorikeet::ops {

inline constexpr std::int64_t kAdamWPartialSums = 1024, kAdamWScalars = 4;

struct AdamWOnDevice {
  float* values;
  float* gradients;
  float* exp_avg;
  float* exp_avg_sq;
  float* updates;
  void* compute;  ///< or nullptr where the values are their own copy
  std::int64_t n;
  float* partial_sums;  ///< [kAdamWPartialSums], of no meaning afterwards
  float* scalars;       ///< [kAdamWScalars], the same
  float* norm;          ///< [1], the result
};

/// Three launches. `element` is the compute copy's. `stream` is a cudaStream_t. Throws Error when a launch
/// fails, and always in a build without CUDA.
void launch_adamw(CudaElement element, const AdamWOnDevice& in, const AdamWStep& step, void* stream);

}  // namespace lorikeet::ops
