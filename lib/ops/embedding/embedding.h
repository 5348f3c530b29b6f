#pragma once

#include <ATen/core/Tensor.h>

#include "base/dtype.h"
#include "ops/weight_format.h"

namespace lorikeet::ops {

/// Rows of a frozen table [V, D]. ids: int64 [T], each in [0, V). Returns [T, D] in `out`; there is no
/// gradient. Throws Error when ids isn't an int64 vector (an id out of range is the kernel's error).
at::Tensor embedding(const at::Tensor& ids, const FrozenMatrix& table, DType out);

}  // namespace lorikeet::ops
