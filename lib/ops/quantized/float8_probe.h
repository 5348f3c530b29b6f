#pragma once

#include <c10/core/Device.h>

namespace lorikeet::ops {

/// Multiplies matrices of two sizes in fp8 on a GPU, as float8_forward does, and compares with products in
/// fp32. Libtorch's product with a scale for each row is refused on some cards that have fp8 arithmetic
/// (pytorch/pytorch#192707: compute capability 12.0). Throws Error (kEnvironment), saying what to do, where
/// it is refused or its numbers are others; returns at once for a CPU. The host waits for the result.
void require_float8_products(const at::Device& device);

}  // namespace lorikeet::ops
