#pragma once

#include "ops/weight_format.h"
#include "precision/quantization.h"

namespace lorikeet::ops {

/// Matrices in 4 bits or fp8, each part (a module's weight) quantised by itself, its rows as the checkpoint
/// has them; see QuantizedLayout and Float8Layout. Products decode rows into one buffer: panel by panel in
/// fp32 where products are done in fp32 on a CPU, else all rows of the group in the output's dtype. Either
/// way the numbers are rounded to the output's dtype, so that both multiply the same matrix.
class QuantizedFormat : public WeightFormat {
 public:
  explicit QuantizedFormat(const precision::Quantization& quantization) : quantization_(quantization) {}

  const precision::Quantization& quantization() const { return quantization_; }

  std::int64_t bytes(std::int64_t rows, std::int64_t cols) const override;
  at::Tensor rows(const FrozenMatrix& matrix, std::int64_t begin, std::int64_t end,
                  at::ScalarType dtype) const override;
  void rows_out(const at::Tensor& out, const FrozenMatrix& matrix, std::int64_t begin) const override;
  void stack_out(const at::Tensor& out, const MatrixStack& stack, std::int64_t begin) const override;
  bool exact_products() const override;
  at::Tensor lookup(const FrozenMatrix& matrix, const at::Tensor& ids, at::ScalarType dtype) const override;
  void forward(at::Tensor& out, const at::Tensor& x, const FrozenMatrix& matrix,
               const std::vector<LowRankTerm>& terms, const at::Tensor& bias) const override;
  void exact_forward(at::Tensor& out, const at::Tensor& x, const FrozenMatrix& matrix) const override;
  void backward(at::Tensor& dx, const at::Tensor& dy, const FrozenMatrix& matrix,
                const std::vector<LowRankTerm>& terms) const override;

 private:
  // forward with the weight's numbers and x as it is.
  void decoded_forward(at::Tensor& out, const at::Tensor& x, const FrozenMatrix& matrix,
                       const std::vector<LowRankTerm>& terms, const at::Tensor& bias) const;
  // Rows [begin, end), rounded to `rounded`, into `target` [end - begin, cols].
  void decode(const FrozenMatrix& matrix, std::int64_t begin, std::int64_t end, at::ScalarType rounded,
              const at::Tensor& target) const;
  RowSource source(const FrozenMatrix& matrix, at::ScalarType rounded) const;

  precision::Quantization quantization_;
};

/// The one format of a quantisation; it lives as long as the program.
const QuantizedFormat& quantized_format(const precision::Quantization& quantization);

/// A CPU matrix [rows, cols] quantised as one part: for tests.
FrozenMatrix quantized_matrix(const at::Tensor& weight, const precision::Quantization& quantization = {});

}  // namespace lorikeet::ops
