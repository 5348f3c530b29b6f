#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <vector>

#include "ops/experts/routing.h"
#include "ops/in_place.h"
#include "ops/matrix_stack.h"

// Products of experts' rows, those of all experts in one launch: on GPUs with tensor cores, in 16 bits. By
// themselves the products of many small experts leave a GPU half idle, and the host launches them one by one.
namespace lorikeet::ops {

/// A low-rank term of a product: of the columns from `begin` on, for each row left [r] times its expert's
/// right: [experts, columns, r], or, in a gradient of the input, [experts, r, columns]. Operands' last
/// dimension is dense; left: [rows, r].
struct GroupedTerm {
  at::Tensor left;
  MatrixList right;
  std::int64_t begin = 0;
};

/// Whether a GPU of this compute capability (ops/capability.h) has these products in a dtype: 16 bits, with
/// tensor cores.
bool has_grouped_products(int capability, at::ScalarType dtype);

/// Whether a product of one expert by itself, with its share of the rows and so many columns, has fewer tiles
/// than would fill a large GPU twice. How many rows each expert has isn't known to the host.
bool leaves_device_idle(std::int64_t rows, std::int64_t experts, std::int64_t columns);

/// Whether functions here take rows [T * k, features] of these experts: of a GPU and dtype that have them,
/// aligned, none that are multiplied in fp8, and experts so small that they leave the GPU idle one by one.
/// It depends on shapes alone: the host needn't know which rows are whose.
bool groups_products(const at::Tensor& rows, const MatrixStack& matrices);

/// Whether they take these operands of terms, or as such: aligned, of dimensions that are multiples of 8.
bool groups_operand(const at::Tensor& operand);

/// out [rows, out features] = x W_e^T + bias_e + scale * terms, for the rows of each expert e; sums are fp32,
/// rounded once. Matrices that aren't stored as numbers of x's dtype are decoded, as many at a time as the
/// stack's scratch holds. At most two terms.
void grouped_forward(at::Tensor& out, const at::Tensor& x, const Routing& routing,
                     const MatrixStack& matrices, const std::vector<GroupedTerm>& terms = {},
                     double scale = 1);

/// dx [rows, in features] = dy W_e + scale * terms.
void grouped_backward(at::Tensor& dx, const at::Tensor& dy, const Routing& routing,
                      const MatrixStack& matrices, const std::vector<GroupedTerm>& terms = {},
                      double scale = 1);

/// out [rows, columns] = left right_e^T, right: [experts, columns, inner], or, transposed, left right_e,
/// right: [experts, inner, columns].
void grouped_product(const at::Tensor& out, const at::Tensor& left, const MatrixList& right, bool transposed,
                     const Routing& routing);

/// sums [experts, m, n], fp32, += scale * left^T right over each expert's rows; left: [rows, m], right:
/// [rows, n].
void grouped_sums(const MatrixList& sums, const at::Tensor& left, const at::Tensor& right, double scale,
                  const Routing& routing);

}  // namespace lorikeet::ops
