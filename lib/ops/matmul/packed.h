#pragma once

#include <ATen/core/Tensor.h>

#include <optional>
#include <vector>

#include "ops/matmul/tiles.h"

namespace lorikeet::ops {

/// left right, [M, r] and [r, n], times `scale`, added to output columns [begin, begin + n).
struct PackedTerm {
  at::Tensor left, right;
  std::int64_t begin = 0;
  double scale = 1;
};

/// Whether products with a bf16 operand on a CPU are packed ones: where the kernels are fast there, unless
/// reference_ops().
bool packed_products();

/// Whether multiply_packed takes the tensor as an operand or result: 2-d, fp32 or bf16.
bool packs(const at::Tensor& tensor);

/// out [M, N] = left [M, K] right [K, N] + terms + bias (undefined or fp32 [N]), on a CPU in one pass:
/// operands, each fp32 or bf16 and row-major or transposed, are widened to fp32 while they are copied into
/// the order of the kernels (tiles.h), or, with tiles::kPairs, copied there as they are, for which all have
/// to be bf16; sums are fp32 and rounded once to out's dtype. With `add_scale` out, fp32, is added to: out +=
/// add_scale left right. An element's sum has the same order whatever the other rows are and however many
/// threads work. The algorithm is BLIS's: panels of the right operand, blocks of the left one, tiles in
/// registers (Van Zee and van de Geijn, BLIS: a framework for rapidly instantiating BLAS functionality,
/// 2015).
void multiply_packed(at::Tensor& out, const at::Tensor& left, const at::Tensor& right,
                     const std::vector<PackedTerm>& terms = {}, const at::Tensor& bias = {},
                     std::optional<double> add_scale = std::nullopt,
                     const tiles::Kernel& kernel = tiles::kernel_of_cpu());

}  // namespace lorikeet::ops
