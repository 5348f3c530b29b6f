#pragma once

#include <ATen/core/Tensor.h>

#include "nn/row_order.h"

namespace lorikeet::nn {

/// A module's tensor whose first dimension counts the module's rows (weight [rows, in], bias [rows], lora_B
/// [rows, rank], or the optimizer's moments of one), from module order to group order. Any dtype and device.
/// Gives the tensor itself, not a copy, where the order is the identity.
at::Tensor to_group_order(const at::Tensor& in_module_order, const RowOrder& order);

/// The inverse.
at::Tensor to_module_order(const at::Tensor& in_group_order, const RowOrder& order);

}  // namespace lorikeet::nn
