#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <memory>
#include <vector>

#include "base/dtype.h"
#include "ops/matmul/matmul.h"

namespace lorikeet::ops {

/// Rows that follow each other both as they are stored and in a matrix.
struct StoredRun {
  std::int64_t stored_row, row, count;
};

/// Consecutive rows of a matrix that were stored together, one module's weight. Formats that share numbers
/// between rows (scales) keep the module's own order.
struct MatrixPart {
  std::int64_t offset_bytes = 0;  ///< in the matrix's bytes
  std::int64_t rows = 0;
  std::vector<StoredRun> runs;  ///< from the part's stored rows to the matrix's
};

class WeightFormat;
struct MatrixStack;  // matrix_stack.h

/// A frozen matrix as operators see it, for as long as its bytes are borrowed. Nobody keeps one.
struct FrozenMatrix {
  const WeightFormat* format;
  at::Tensor bytes;  ///< uint8, flat
  std::int64_t rows, cols;
  std::shared_ptr<const std::vector<MatrixPart>> parts;  ///< null where rows lie densely after each other

  /// All of it as numbers [rows, cols].
  at::Tensor dense(at::ScalarType dtype) const;
};

/// How a frozen matrix [rows, cols] = [out features, in features] is stored. Stateless: what is stored comes
/// with each call, as the matrix's bytes. Only a format knows what lies in them.
class WeightFormat {
 public:
  virtual ~WeightFormat();

  /// Bytes of a matrix, or of a part of one.
  virtual std::int64_t bytes(std::int64_t rows, std::int64_t cols) const = 0;

  /// Rows [begin, end) as numbers [end - begin, cols] of `dtype`; a view where they are stored so.
  virtual at::Tensor rows(const FrozenMatrix& matrix, std::int64_t begin, std::int64_t end,
                          at::ScalarType dtype) const = 0;

  /// The same of rows [begin, begin + out.size(0)), written to the dense `out`, in its dtype.
  virtual void rows_out(const at::Tensor& out, const FrozenMatrix& matrix, std::int64_t begin) const;

  /// All rows of the matrices [begin, begin + out.size(0)) of a stack of this format, written to the dense
  /// `out` [matrices, rows, cols], in its dtype; on a GPU by few launches, however many matrices.
  virtual void stack_out(const at::Tensor& out, const MatrixStack& stack, std::int64_t begin) const;

  /// The rows `ids` (int64 [T]) as [T, cols] of `dtype`.
  virtual at::Tensor lookup(const FrozenMatrix& matrix, const at::Tensor& ids,
                            at::ScalarType dtype) const = 0;

  /// out [T, rows] = x W^T + bias (undefined or [rows]) + terms, as matmul_nt_out. x: [T, cols].
  virtual void forward(at::Tensor& out, const at::Tensor& x, const FrozenMatrix& matrix,
                       const std::vector<LowRankTerm>& terms, const at::Tensor& bias) const = 0;

  /// Whether `forward` multiplies x as it is: not where it brings x to fp8.
  virtual bool exact_products() const { return true; }

  /// out [T, rows] = x W^T in x's dtype, also where `forward` brings x to fp8.
  virtual void exact_forward(at::Tensor& out, const at::Tensor& x, const FrozenMatrix& matrix) const {
    forward(out, x, matrix, {}, {});
  }

  /// dx [T, cols] = dy W + terms, as matmul_nn_out. dy: [T, rows].
  virtual void backward(at::Tensor& dx, const at::Tensor& dy, const FrozenMatrix& matrix,
                        const std::vector<LowRankTerm>& terms) const = 0;
};

/// Row-major numbers of one dtype. Where that isn't the operands', rows are converted for the product.
class DenseFormat : public WeightFormat {
 public:
  explicit DenseFormat(DType storage) : storage_(storage) {}

  std::int64_t bytes(std::int64_t rows, std::int64_t cols) const override;
  at::Tensor rows(const FrozenMatrix& matrix, std::int64_t begin, std::int64_t end,
                  at::ScalarType dtype) const override;
  at::Tensor lookup(const FrozenMatrix& matrix, const at::Tensor& ids, at::ScalarType dtype) const override;
  void forward(at::Tensor& out, const at::Tensor& x, const FrozenMatrix& matrix,
               const std::vector<LowRankTerm>& terms, const at::Tensor& bias) const override;
  void backward(at::Tensor& dx, const at::Tensor& dy, const FrozenMatrix& matrix,
                const std::vector<LowRankTerm>& terms) const override;

 private:
  DType storage_;
};

/// The one dense format of a dtype; it lives as long as the program.
const WeightFormat& dense_format(DType storage);

/// A dense tensor [rows, cols] as a frozen matrix: for tests and tables. Throws Error unless it has two
/// dimensions.
FrozenMatrix frozen_matrix(const at::Tensor& weight);

}  // namespace lorikeet::ops
