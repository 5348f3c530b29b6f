#pragma once

#include <ATen/core/Tensor.h>

#include <vector>

#include "ops/matmul/matmul.h"

// How products are done whose operands are widened: by kernels of our own (packed.h), which read bf16
// operands as they are, or by libtorch's in fp32 (fp64), whose operands are widened in memory. And the
// addends, which libtorch's kernels need in any case. For matmul.cpp alone.
namespace lorikeet::ops {

/// `tensor` in the dtype that products with it are summed in.
at::Tensor widen(const at::Tensor& tensor);

/// As matmul_nt_out and matmul_nn_out, each with a dense weight and one that isn't stored as numbers.
void widened_nt(at::Tensor& out, const at::Tensor& x, const at::Tensor& w,
                const std::vector<LowRankTerm>& terms, const at::Tensor& bias);
void widened_nt(at::Tensor& out, const at::Tensor& x, const RowSource& w,
                const std::vector<LowRankTerm>& terms, const at::Tensor& bias);
void widened_nn(at::Tensor& out, const at::Tensor& y, const at::Tensor& w,
                const std::vector<LowRankTerm>& terms);
void widened_nn(at::Tensor& out, const at::Tensor& y, const RowSource& w,
                const std::vector<LowRankTerm>& terms);

/// out += scale left right, of one dtype, by libtorch's kernels.
void add_product(at::Tensor& out, const at::Tensor& left, const at::Tensor& right, double scale);

/// Adds to `panel`, which is columns [begin, end) of an output, what terms of its dtype and the bias
/// (undefined or [N]) give there, by libtorch's kernels.
void add_terms(at::Tensor& panel, std::int64_t begin, std::int64_t end, const std::vector<LowRankTerm>& terms,
               const at::Tensor& bias);

}  // namespace lorikeet::ops
