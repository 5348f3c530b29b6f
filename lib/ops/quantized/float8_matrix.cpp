#include "ops/quantized/float8_matrix.h"

#include <ATen/ATen.h>
#include <ATen/Parallel.h>

#include <algorithm>

#include "ops/check.h"
#include "ops/cuda_launch.h"
#include "ops/quantized/decoded_output.h"
#include "ops/quantized/float8_cpu.h"
#include "ops/quantized/float8_cuda.h"
#include "ops/reference_ops.h"

namespace lorikeet::ops {
namespace {

constexpr const char* kOp = "fp8";
constexpr std::int64_t kGrain = 16384;

Float8Matrix matrix_of(const at::Tensor& bytes, const Float8Layout& layout) {
  const auto* begin = bytes.const_data_ptr<std::uint8_t>();
  return {.codes = begin,
          .scales = reinterpret_cast<const float*>(begin + layout.scales_begin),
          .cols = layout.cols,
          .block_rows = layout.block_rows,
          .block_cols = layout.block_cols,
          .scale_cols = layout.scale_cols};
}

template <typename T>
void decode_rows(const Float8Matrix& matrix, std::int64_t first, std::int64_t rows, cpu::Rounding rounding,
                 T* out) {
  const std::int64_t grain = std::max<std::int64_t>(1, kGrain / std::max<std::int64_t>(1, matrix.cols));
  at::parallel_for(0, rows, grain, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t row = begin; row < end; ++row) {
      const float* scales = matrix.scales + (first + row) / matrix.block_rows * matrix.scale_cols;
      const std::uint8_t* codes = matrix.codes + (first + row) * matrix.cols;
      for (std::int64_t col = 0; col < matrix.cols; col += matrix.block_cols) {
        const std::int64_t count = std::min(matrix.block_cols, matrix.cols - col);
        cpu::decode_float8(codes + col, count, scales[col / matrix.block_cols], rounding,
                           out + row * matrix.cols + col);
      }
    }
  });
}

void check_rows(const at::Tensor& bytes, const Float8Layout& layout, std::int64_t first_row,
                const at::Tensor& out) {
  check_tensor(out.dim() == 2 && out.size(1) == layout.cols, kOp, "whole rows", out);
  check(first_row >= 0 && first_row + out.size(0) <= layout.rows && bytes.numel() >= layout.bytes, kOp,
        "rows of the matrix", [&] {
          return "[" + std::to_string(first_row) + ", " + std::to_string(first_row + out.size(0)) + ") of " +
                 std::to_string(layout.rows) + " in " + std::to_string(bytes.numel()) + " bytes";
        });
}

}  // namespace

void decode_float8(const at::Tensor& bytes, const Float8Layout& layout, std::int64_t first_row,
                   at::ScalarType rounded, const at::Tensor& out) {
  check_decoded(kOp, rounded, out);
  check_rows(bytes, layout, first_row, out);
  if (out.is_meta()) return;
  if (reference_ops()) return reference::decode_float8(bytes, layout, first_row, rounded, out);
  const Float8Matrix matrix = matrix_of(bytes, layout);
  const std::int64_t rows = out.size(0);
  if (out.is_cuda()) {
    launch_decoder(out, rounded, [&](CudaElement element, void* numbers, void* stream) {
      launch_decode_float8(matrix, {}, first_row, rows, element, numbers, stream);
    });
  } else if (out.scalar_type() == at::kFloat) {
    decode_rows(matrix, first_row, rows, rounding_to(rounded), out.mutable_data_ptr<float>());
  } else {
    decode_rows(matrix, first_row, rows, rounding_to(rounded),
                static_cast<std::uint16_t*>(out.mutable_data_ptr()));
  }
}

void decode_float8_stack(const at::Tensor& bytes, std::int64_t apart, const Float8Layout& layout,
                         std::int64_t first_row, const at::Tensor& out) {
  if (!out.is_cuda() || reference_ops()) {
    for (std::int64_t i = 0; i < out.size(0); ++i)
      decode_float8(bytes.slice(0, i * apart), layout, first_row, out.scalar_type(), out.select(0, i));
    return;
  }
  check_decoded_stack(kOp, bytes, apart, layout.bytes, out);
  check_rows(bytes, layout, first_row, out.select(0, 0));
  const Float8Matrix matrix = matrix_of(bytes, layout);
  const QuantizedStack stack{.count = out.size(0), .bytes_apart = apart, .out_apart = out.stride(0)};
  launch_on_device_of(out, [&](void* stream) {
    launch_decode_float8(matrix, stack, first_row, out.size(1), cuda_element(out), out.mutable_data_ptr(),
                         stream);
  });
}

at::Tensor float8_codes(const at::Tensor& bytes, const Float8Layout& layout) {
  return bytes.narrow(0, 0, layout.codes_bytes).view(at::kFloat8_e4m3fn).view({layout.rows, layout.cols});
}

at::Tensor float8_scales(const at::Tensor& bytes, const Float8Layout& layout) {
  const std::int64_t count = layout.scale_rows * layout.scale_cols;
  return bytes.narrow(0, layout.scales_begin, 4 * count)
      .view(at::kFloat)
      .view({layout.scale_rows, layout.scale_cols});
}

}  // namespace lorikeet::ops
