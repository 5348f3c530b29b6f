#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <vector>

#include "ops/matmul/matmul.h"
#include "ops/matmul/packed.h"

// Which products are done by kernels of our own (packed.h), and these products with low-rank terms. For this
// folder alone.
namespace lorikeet::ops {

/// Whether out = left right is done in fp32 by kernels of our own, where it isn't done natively: where tiles
/// are at home, one of the operands is bf16 and no matrix is fp16 or fp64.
bool packs_widened(const at::Tensor& out, const at::Tensor& left, const at::Tensor& right);

/// Whether out = left right + terms, which is done natively, is done by kernels of our own: see
/// native_products_are_own.
bool packs_pairs(const at::Tensor& out, const at::Tensor& left, const at::Tensor& right,
                 const std::vector<LowRankTerm>& terms = {});

/// Rows of x from which on a product with a weight is done so: for fewer, packing the weight costs as much as
/// it gains.
inline constexpr std::int64_t kLeastPackedRows = 32;

/// What of the terms of x w^T falls into output columns [begin, end), as columns of these.
std::vector<PackedTerm> packed_nt_terms(const std::vector<LowRankTerm>& terms, std::int64_t begin,
                                        std::int64_t end);
/// The terms of y w.
std::vector<PackedTerm> packed_nn_terms(const std::vector<LowRankTerm>& terms);

/// out = x w^T + terms + bias (undefined or [N]), and out = y w + terms, by multiply_packed.
void packed_nt(at::Tensor& out, const at::Tensor& x, const at::Tensor& w,
               const std::vector<LowRankTerm>& terms, const at::Tensor& bias, const tiles::Kernel& kernel);
void packed_nn(at::Tensor& out, const at::Tensor& y, const at::Tensor& w,
               const std::vector<LowRankTerm>& terms, const tiles::Kernel& kernel);

/// out [N, K], fp32, += scale y^T x. Taken where packs_widened(out, y, x).
void packed_tn_add(at::Tensor& out, const at::Tensor& y, const at::Tensor& x, double scale);

}  // namespace lorikeet::ops
