#pragma once

#include <ATen/core/Tensor.h>

#include "ops/matmul/matmul.h"
#include "ops/weight_format.h"
#include "precision/quantization.h"

namespace lorikeet::ops {

// Forward products in fp8: activations are quantised too, row by row, each time. Backward multiplies with the
// weights' numbers in the gradient's dtype.

/// Whether frozen weights in fp8 are multiplied in fp8 from now on, in the whole process; not at first.
void set_float8_products(bool in_float8);
bool float8_products();

/// Whether weights quantised so can be: a scale for each row, or one for the matrix.
bool has_float8_products(const precision::Quantization& quantization);

/// Rows as codes times a scale of their own: their largest absolute value over 448.
struct Float8Rows {
  at::Tensor codes;   ///< e4m3 [T, K]
  at::Tensor scales;  ///< fp32 [T, 1]
};
Float8Rows to_float8_rows(const at::Tensor& x);

/// out [T, n] = x W^T for rows of codes [n, K] with scales fp32 [n]; out may be columns of a larger matrix.
void float8_product_out(at::Tensor out, const Float8Rows& x, const at::Tensor& codes,
                        const at::Tensor& scales);

/// out [T, rows] = x W^T + bias (undefined or [rows]) + terms, where x's rows are brought to fp8 first:
/// products of codes are summed in fp32 and multiplied by both scales. On GPUs by at::_scaled_mm where widths
/// are multiples of 16, else, and on CPUs, by products of the codes in fp32: the same numbers but for the
/// order of sums. `matrix` is of a QuantizedFormat of `quantization`, for which has_float8_products holds.
void float8_forward(at::Tensor& out, const at::Tensor& x, const FrozenMatrix& matrix,
                    const precision::Float8& quantization, const std::vector<LowRankTerm>& terms,
                    const at::Tensor& bias);

}  // namespace lorikeet::ops
