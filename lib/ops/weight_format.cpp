#include "ops/weight_format.h"

#include <ATen/ATen.h>

#include <string>

#include "ops/check.h"
#include "ops/dtype.h"
#include "ops/matrix_stack.h"
#include "ops/part.h"
#include "ops/take_rows.h"

namespace lorikeet::ops {

WeightFormat::~WeightFormat() = default;

void WeightFormat::rows_out(const at::Tensor& out, const FrozenMatrix& matrix, std::int64_t begin) const {
  out.copy_(rows(matrix, begin, begin + out.size(0), out.scalar_type()));
}

void WeightFormat::stack_out(const at::Tensor& out, const MatrixStack& stack, std::int64_t begin) const {
  for (std::int64_t i = 0; i < out.size(0); ++i) rows_out(out.select(0, i), stack.of(begin + i), 0);
}

FrozenMatrix MatrixStack::of(std::int64_t expert) const {
  FrozenMatrix matrix = first;
  matrix.bytes = bytes.narrow(0, expert * apart, first.bytes.numel());
  return matrix;
}

std::int64_t DenseFormat::bytes(std::int64_t rows, std::int64_t cols) const {
  return rows * cols * static_cast<std::int64_t>(dtype_size(storage_));
}

at::Tensor FrozenMatrix::dense(at::ScalarType dtype) const { return format->rows(*this, 0, rows, dtype); }

at::Tensor DenseFormat::rows(const FrozenMatrix& matrix, std::int64_t begin, std::int64_t end,
                             at::ScalarType dtype) const {
  const at::Tensor all = matrix.bytes.view(to_torch(storage_)).view({-1, matrix.cols});
  return part(all, 0, begin, end).to(dtype);
}

at::Tensor DenseFormat::lookup(const FrozenMatrix& matrix, const at::Tensor& ids,
                               at::ScalarType dtype) const {
  return take_rows(matrix.bytes.view(to_torch(storage_)).view({-1, matrix.cols}), ids).to(dtype);
}

void DenseFormat::forward(at::Tensor& out, const at::Tensor& x, const FrozenMatrix& matrix,
                          const std::vector<LowRankTerm>& terms, const at::Tensor& bias) const {
  matmul_nt_out(out, x, rows(matrix, 0, matrix.rows, out.scalar_type()), terms, bias);
}

void DenseFormat::backward(at::Tensor& dx, const at::Tensor& dy, const FrozenMatrix& matrix,
                           const std::vector<LowRankTerm>& terms) const {
  matmul_nn_out(dx, dy, rows(matrix, 0, matrix.rows, dx.scalar_type()), terms);
}

const WeightFormat& dense_format(DType storage) {
  static const DenseFormat fp64(DType::kF64), fp32(DType::kF32), fp16(DType::kF16), bf16(DType::kBF16);
  switch (storage) {
    case DType::kF64: return fp64;
    case DType::kF32: return fp32;
    case DType::kF16: return fp16;
    case DType::kBF16: return bf16;
    default: fail("dense_format", "a floating dtype of at least 16 bits", std::string(dtype_name(storage)));
  }
}

FrozenMatrix frozen_matrix(const at::Tensor& weight) {
  check_tensor(weight.defined() && weight.dim() == 2, "frozen weight", "a matrix [out features, in features]",
               weight);
  const auto dense = weight.detach().contiguous();
  return {&dense_format(from_torch(dense.scalar_type())), dense.flatten().view(at::kByte), dense.size(0),
          dense.size(1), nullptr};
}

}  // namespace lorikeet::ops
