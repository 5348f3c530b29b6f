#pragma once

#include <cstdint>

#include "ops/cuda_element.h"

// Softmax and negative log-likelihood on a GPU, without libtorch. All pointers are device memory.
namespace lorikeet::ops {

struct SoftmaxNllOnDevice {
  void* logits;  ///< [rows, width], dense; with `gradient` overwritten with it
  std::int64_t rows, width;
  const std::int64_t* labels;  ///< [rows]; one out of [0, width) makes its row's results NaN
  float scale;                 ///< multiplies the logits
  float soft_cap;              ///< > 0: then value = cap * tanh(value / cap)
  bool gradient;
  float grad_scale;  ///< multiplies the gradient
  float* nll;        ///< [rows]: log(sum of exp(values)) - values[label]
};

/// One launch, of a block a row, that reads the logits once, or twice with `gradient`; nothing where there
/// are no elements. `stream` is a cudaStream_t. Throws Error when the launch fails, and always in a build
/// without CUDA.
void launch_softmax_nll(CudaElement element, const SoftmaxNllOnDevice& in, void* stream);

}  // namespace lorikeet::ops
