#pragma once

#include <ATen/core/Tensor.h>

namespace lorikeet::ops::cpu {

/// As ops::row_gate and ops::add_row_gate_, for dense fp32 or bf16; y: [T, D].
void row_gate(const at::Tensor& x, const at::Tensor& gate, const at::Tensor& y);
void add_row_gate(const at::Tensor& x, const at::Tensor& gate, const at::Tensor& y);

}  // namespace lorikeet::ops::cpu
