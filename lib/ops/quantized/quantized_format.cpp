#include "ops/quantized/quantized_format.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <list>
#include <mutex>

#include "ops/check.h"
#include "ops/dry_run.h"
#include "ops/quantized/dequantize.h"
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

}  // namespace

std::int64_t QuantizedFormat::bytes(std::int64_t rows, std::int64_t cols) const {
  return QuantizedLayout(rows * cols, quantization_).bytes;
}

void QuantizedFormat::decode(const FrozenMatrix& matrix, std::int64_t begin, std::int64_t end,
                             at::ScalarType rounded, const at::Tensor& target) const {
  if (!matrix.parts) fail("quantized weight", "the parts that it was quantised in", "none");
  for (const MatrixPart& part : *matrix.parts) {
    const QuantizedLayout layout(part.rows * matrix.cols, quantization_);
    const at::Tensor bytes = matrix.bytes.narrow(0, part.offset_bytes, layout.bytes);
    for (const StoredRun& run : part.runs) {
      const std::int64_t from = std::max(begin, run.row), to = std::min(end, run.row + run.count);
      if (from >= to) continue;
      dequantize(bytes, layout, quantization_, (run.stored_row + from - run.row) * matrix.cols, rounded,
                 target.slice(0, from - begin, to - begin));
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
  Quantizer quantizer(weight.numel(), quantization);
  at::Tensor codes = quantizer.add(weight.detach().to(at::kFloat).contiguous().flatten());
  const QuantizedLayout& layout = quantizer.layout();
  at::Tensor bytes = at::zeros({layout.bytes}, at::kByte);
  bytes.narrow(0, 0, codes.numel()).copy_(codes);
  bytes.slice(0, layout.scales_begin).copy_(quantizer.finish());
  const std::int64_t rows = weight.size(0);
  const std::vector<MatrixPart> parts{{.offset_bytes = 0, .rows = rows, .runs = {{0, 0, rows}}}};
  return {&quantized_format(quantization), bytes, rows, weight.size(1),
          std::make_shared<const std::vector<MatrixPart>>(parts)};
}

}  // namespace lorikeet::ops
