#pragma once

#include <ATen/core/Tensor.h>

#include "ops/experts/routing.h"

namespace lorikeet::ops::cpu {

/// As ops::spread_rows and ops::combine_rows, for dense fp32 or bf16; rows: [T * k, D], out: [T, D].
void spread_rows(const at::Tensor& x, const Routing& routing, RowWeights weights, at::Tensor& rows);
void combine_rows(const at::Tensor& rows, const Routing& routing, RowWeights weights, at::Tensor& out);

/// As ops::row_products, for dense fp32 or bf16; out: fp32 [n].
void row_products(const at::Tensor& a, const at::Tensor& b, at::Tensor& out);

}  // namespace lorikeet::ops::cpu
