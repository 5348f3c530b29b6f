#pragma once

#include <ATen/core/Tensor.h>

namespace lorikeet::ops {

/// The compute capability of a tensor's GPU, 10 * major + minor; of a dry run's target for a tensor without
/// data. 0 on a CPU, and where the driver doesn't report it.
int capability_of(const at::Tensor& tensor);

}  // namespace lorikeet::ops
