#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

#include "ops/quantized/float8_layout.h"

namespace lorikeet::ops {

/// Rows of a fp8 matrix from `first_row` on: each code's value times its block's scale in fp32, rounded to
/// `rounded` (fp32, bf16 or fp16), in the dense `out` [rows, cols], which is of that dtype or fp32. `bytes`
/// (uint8, flat) begins with the matrix's; both are on one device, CPU or GPU. Nothing is computed for meta
/// tensors.
void decode_float8(const at::Tensor& bytes, const Float8Layout& layout, std::int64_t first_row,
                   at::ScalarType rounded, const at::Tensor& out);

/// The same of out.size(0) matrices whose bytes begin `apart` (a multiple of 4) after each other, into out
/// [matrices, rows, cols], each of them dense, rounded to its dtype (fp32, bf16 or fp16). On a GPU it is one
/// launch.
void decode_float8_stack(const at::Tensor& bytes, std::int64_t apart, const Float8Layout& layout,
                         std::int64_t first_row, const at::Tensor& out);

/// Its codes as e4m3 numbers [rows, cols], a view.
at::Tensor float8_codes(const at::Tensor& bytes, const Float8Layout& layout);

/// Its scales, fp32 [scale_rows, scale_cols], a view.
at::Tensor float8_scales(const at::Tensor& bytes, const Float8Layout& layout);

namespace reference {

/// The same by plain ATen calls, row by row.
void decode_float8(const at::Tensor& bytes, const Float8Layout& layout, std::int64_t first_row,
                   at::ScalarType rounded, const at::Tensor& out);

}  // namespace reference
}  // namespace lorikeet::ops
