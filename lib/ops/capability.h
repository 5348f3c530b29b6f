#pragma once

#include <ATen/core/Tensor.h>

namespace lorikeet::ops {

/// The compute capability of a tensor's GPU, 10 * major + minor; of a dry run's target for a tensor without
/// data. 0 on a CPU, and where the driver doesn't report it.
int capability_of(const at::Tensor& tensor);

/// Whether it is one of Hopper's (9.x).
constexpr bool is_hopper(int capability) { return capability >= 90 && capability < 100; }

}  // namespace lorikeet::ops
