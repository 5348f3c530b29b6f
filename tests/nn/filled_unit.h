#pragma once

#include <ATen/ATen.h>

#include <cstdint>

#include "nn/weights.h"

namespace lorikeet::test {

/// Normal numbers of a seed, fp32.
inline at::Tensor random(at::IntArrayRef sizes, std::uint64_t seed) {
  return at::randn(sizes, at::make_generator<at::CPUGeneratorImpl>(seed), at::TensorOptions(at::kFloat));
}

/// Allocates a unit on the CPU and fills it with random weights, as its policy stores them.
inline void fill_randomly(nn::WeightUnit& unit) {
  unit.allocate(at::kCPU);
  for (std::size_t i = 0; i < unit.segments().size(); ++i) {
    const nn::WeightSegment& segment = unit.segments()[i];
    const at::Tensor numbers = 0.2 * random(segment.shape, 100 + i);
    if (segment.quantized != nullptr) {
      unit.held(i).values.copy_(ops::quantized_matrix(numbers, segment.quantized->quantization()).bytes);
    } else {
      unit.held(i).values.copy_(numbers.flatten());
    }
  }
}

}  // namespace lorikeet::test
