#include "ops/quantized/quantized_format.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <list>
#include <mutex>

#include "ops/check.h"
#include "ops/dry_run.h"
#include "ops/matrix_stack.h"
#include "ops/quantized/dequantize.h"
#include "ops/quantized/float8_matrix.h"
#include "ops/quantized/float8_product.h"
#include "ops/quantized/quantize.h"

namespace lorikeet::ops {
namespace {

// fp64 is for tests of derivatives: its numbers are the fp32 ones.
at::ScalarType decodable(at::ScalarType dtype) { return dtype == at::kDouble ? at::kFloat : dtype; }

// Whether a product whose output is `out` takes the weight in panels of fp32.
bool in_panels(const at::Tensor& out) {
  if (kernels_of(out) == at::kCUDA) return false;
  return !at::isReducedFloatingType(out.scalar_type()) ||
         !multiplies_natively(out.scalar_type(), out.device());
}

std::int64_t stored_bytes(const precision::FourBits& how, std::int64_t rows, std::int64_t cols) {
  return QuantizedLayout(rows * cols, how).bytes;
}

std::int64_t stored_bytes(const precision::Float8& how, std::int64_t rows, std::int64_t cols) {
  return Float8Layout(rows, cols, how).bytes;
}

// Rows from `first` on of a part [rows, cols] whose bytes begin there.
void decode_part(const precision::FourBits& how, const at::Tensor& bytes, std::int64_t rows,
                 std::int64_t cols, std::int64_t first, at::ScalarType rounded, const at::Tensor& out) {
  dequantize(bytes, QuantizedLayout(rows * cols, how), how, first * cols, rounded, out);
}

void decode_part(const precision::Float8& how, const at::Tensor& bytes, std::int64_t rows, std::int64_t cols,
                 std::int64_t first, at::ScalarType rounded, const at::Tensor& out) {
  decode_float8(bytes, Float8Layout(rows, cols, how), first, rounded, out);
}

// The same of a part of each matrix of a stack, into out [matrices, rows, cols], rounded to its dtype.
void decode_parts(const precision::FourBits& how, const at::Tensor& bytes, std::int64_t apart,
                  std::int64_t rows, std::int64_t cols, std::int64_t first, const at::Tensor& out) {
  dequantize_stack(bytes, apart, QuantizedLayout(rows * cols, how), how, first * cols,
                   out.view({out.size(0), -1}));
}

void decode_parts(const precision::Float8& how, const at::Tensor& bytes, std::int64_t apart,
                  std::int64_t rows, std::int64_t cols, std::int64_t first, const at::Tensor& out) {
  decode_float8_stack(bytes, apart, Float8Layout(rows, cols, how), first, out);
}

}  // namespace

std::int64_t QuantizedFormat::bytes(std::int64_t rows, std::int64_t cols) const {
  return std::visit([&](const auto& how) { return stored_bytes(how, rows, cols); }, quantization_);
}

void QuantizedFormat::decode(const FrozenMatrix& matrix, std::int64_t begin, std::int64_t end,
                             at::ScalarType rounded, const at::Tensor& target) const {
  if (!matrix.parts) fail("quantized weight", "the parts that it was quantised in", "none");
  for (const MatrixPart& part : *matrix.parts) {
    const at::Tensor bytes = matrix.bytes.narrow(0, part.offset_bytes, this->bytes(part.rows, matrix.cols));
    for (const StoredRun& run : part.runs) {
      const std::int64_t from = std::max(begin, run.row), to = std::min(end, run.row + run.count);
      if (from >= to) continue;
      const at::Tensor out = target.slice(0, from - begin, to - begin);
      std::visit(
          [&](const auto& how) {
            decode_part(how, bytes, part.rows, matrix.cols, run.stored_row + from - run.row, rounded, out);
          },
          quantization_);
    }
  }
}

at::Tensor QuantizedFormat::rows(const FrozenMatrix& matrix, std::int64_t begin, std::int64_t end,
                                 at::ScalarType dtype) const {
  const at::Tensor numbers =
      at::empty({end - begin, matrix.cols}, matrix.bytes.options().dtype(decodable(dtype)));
  decode(matrix, begin, end, decodable(dtype), numbers);
  return numbers.to(dtype);
}

void QuantizedFormat::rows_out(const at::Tensor& out, const FrozenMatrix& matrix, std::int64_t begin) const {
  if (out.scalar_type() == at::kDouble) return WeightFormat::rows_out(out, matrix, begin);
  decode(matrix, begin, begin + out.size(0), out.scalar_type(), out);
}

void QuantizedFormat::stack_out(const at::Tensor& out, const MatrixStack& stack, std::int64_t begin) const {
  if (out.scalar_type() == at::kDouble) return WeightFormat::stack_out(out, stack, begin);
  const FrozenMatrix& first = stack.first;
  if (!first.parts) fail("quantized weight", "the parts that it was quantised in", "none");
  for (const MatrixPart& part : *first.parts) {
    const at::Tensor bytes = stack.bytes.slice(0, begin * stack.apart + part.offset_bytes);
    for (const StoredRun& run : part.runs) {
      std::visit(
          [&](const auto& how) {
            decode_parts(how, bytes, stack.apart, part.rows, first.cols, run.stored_row,
                         out.slice(1, run.row, run.row + run.count));
          },
          quantization_);
    }
  }
}

bool QuantizedFormat::exact_products() const {
  return !float8_products() || !has_float8_products(quantization_);
}

at::Tensor QuantizedFormat::lookup(const FrozenMatrix&, const at::Tensor&, at::ScalarType) const {
  fail("embedding", "a table of at least 16 bits", describe(quantization_));
}

RowSource QuantizedFormat::source(const FrozenMatrix& matrix, at::ScalarType rounded) const {
  return {.rows = matrix.rows,
          .cols = matrix.cols,
          .fill = [this, &matrix, rounded](std::int64_t begin, std::int64_t end, const at::Tensor& panel) {
            if (panel.scalar_type() == at::kDouble) {
              panel.copy_(rows(matrix, begin, end, at::kFloat));
            } else {
              decode(matrix, begin, end, decodable(rounded), panel);
            }
          }};
}

void QuantizedFormat::forward(at::Tensor& out, const at::Tensor& x, const FrozenMatrix& matrix,
                              const std::vector<LowRankTerm>& terms, const at::Tensor& bias) const {
  if (!exact_products()) {
    float8_forward(out, x, matrix, std::get<precision::Float8>(quantization_), terms, bias);
  } else {
    decoded_forward(out, x, matrix, terms, bias);
  }
}

void QuantizedFormat::exact_forward(at::Tensor& out, const at::Tensor& x, const FrozenMatrix& matrix) const {
  decoded_forward(out, x, matrix, {}, {});
}

void QuantizedFormat::decoded_forward(at::Tensor& out, const at::Tensor& x, const FrozenMatrix& matrix,
                                      const std::vector<LowRankTerm>& terms, const at::Tensor& bias) const {
  if (in_panels(out)) {
    matmul_nt_out(out, x, source(matrix, out.scalar_type()), terms, bias);
  } else {
    matmul_nt_out(out, x, rows(matrix, 0, matrix.rows, out.scalar_type()), terms, bias);
  }
}

void QuantizedFormat::backward(at::Tensor& dx, const at::Tensor& dy, const FrozenMatrix& matrix,
                               const std::vector<LowRankTerm>& terms) const {
  if (in_panels(dx)) {
    matmul_nn_out(dx, dy, source(matrix, dx.scalar_type()), terms);
  } else {
    matmul_nn_out(dx, dy, rows(matrix, 0, matrix.rows, dx.scalar_type()), terms);
  }
}

const QuantizedFormat& quantized_format(const precision::Quantization& quantization) {
  static std::mutex mutex;
  static std::list<QuantizedFormat> formats;
  const std::lock_guard lock(mutex);
  for (const QuantizedFormat& format : formats) {
    if (format.quantization() == quantization) return format;
  }
  return formats.emplace_back(quantization);
}

FrozenMatrix quantized_matrix(const at::Tensor& weight, const precision::Quantization& quantization) {
  const std::int64_t rows = weight.size(0), cols = weight.size(1);
  const auto quantizer = make_quantizer(rows, cols, quantization);
  const at::Tensor codes = quantizer->add(weight.detach().to(at::kFloat).contiguous().flatten());
  at::Tensor bytes = at::zeros({quantizer->bytes()}, at::kByte);
  bytes.narrow(0, 0, codes.numel()).copy_(codes);
  bytes.slice(0, quantizer->rest_begin()).copy_(quantizer->finish());
  const std::vector<MatrixPart> parts{{.offset_bytes = 0, .rows = rows, .runs = {{0, 0, rows}}}};
  return {&quantized_format(quantization), bytes, rows, cols,
          std::make_shared<const std::vector<MatrixPart>>(parts)};
}

}  // namespace lorikeet::ops
