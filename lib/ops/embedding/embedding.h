#pragma once

#include <ATen/core/Tensor.h>

#include "base/dtype.h"
#include "ops/frozen_weight.h"

namespace lorikeet::ops {

/// Rows of a frozen table. ids: int64 [T], each in [0, table.rows()). Returns [T, table.cols()] in `out`; no
/// gradient flows. Throws Error when ids isn't an int64 vector (an id out of range is the kernel's error).
at::Tensor embedding(const at::Tensor& ids, const FrozenWeight& table, DType out);

}  // namespace lorikeet::ops
