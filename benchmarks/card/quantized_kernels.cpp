#include <string>

#include "kernels.h"
#include "ops/quantized/dequantize_cuda.h"
#include "ops/quantized/float8_cuda.h"
#include "ops/quantized/layout.h"

namespace lorikeet::bench {
namespace {

constexpr auto kElement = ops::CudaElement::kBF16;
constexpr std::int64_t kBF16 = 2, kFP32 = 4;  // bytes
// Rows and columns of a frozen matrix.
constexpr std::int64_t kRows = 14336, kCols = 4096;

// `matrices` by one launch. The books' numbers aren't NF4's, which takes no other time.
ops::QuantizedLayout nf4_layout(std::int64_t rows, std::int64_t cols) {
  return {rows * cols, precision::FourBits{}};
}

Case decode_nf4(const std::string& kernel, std::int64_t matrices, std::int64_t rows, std::int64_t cols) {
  const std::int64_t count = rows * cols, stored = nf4_layout(rows, cols).bytes;
  return {.kernel = kernel,
          .shape = (matrices == 1 ? "" : std::to_string(matrices) + " x ") + matrix(rows, cols),
          .bytes = matrices * (stored + count * kBF16),
          .make = [=](DeviceMemory& memory) -> Launch {
            const auto parts = ops::parts_of(nf4_layout(rows, cols), {}, memory.bytes(matrices * stored));
            const ops::QuantizedStack stack{.count = matrices, .bytes_apart = stored, .out_apart = count};
            void* const out = memory.bf16(matrices * count);
            return [=](cudaStream_t stream) {
              ops::launch_dequantize(parts, stack, 0, count, kElement, out, stream);
            };
          }};
}

// A scale for each row, as precision::Float8 has by default.
Case decode_fp8() {
  return {.kernel = "fp8 decode",
          .shape = matrix(kRows, kCols),
          .bytes = kRows * kCols * (1 + kBF16) + kRows * kFP32,
          .make = [](DeviceMemory& memory) -> Launch {
            const ops::Float8Matrix weights{.codes = memory.bytes(kRows * kCols),
                                            .scales = memory.fp32(kRows),
                                            .cols = kCols,
                                            .block_rows = 1,
                                            .block_cols = kCols,
                                            .scale_cols = 1};
            void* const out = memory.bf16(kRows * kCols);
            return [=](cudaStream_t stream) {
              ops::launch_decode_float8(weights, {}, 0, kRows, kElement, out, stream);
            };
          }};
}

Case encode_fp8(std::int64_t rows, std::int64_t cols) {
  return {.kernel = "fp8 encode",
          .shape = matrix(rows, cols),
          .bytes = rows * cols * (kBF16 + 1) + rows * kFP32,
          .make = [=](DeviceMemory& memory) -> Launch {
            const void* const x = memory.bf16(rows * cols);
            std::uint8_t* const codes = memory.bytes(rows * cols);
            float* const scales = memory.fp32(rows);
            return [=](cudaStream_t stream) {
              ops::launch_encode_float8(kElement, x, rows, cols, cols, /*least_scale=*/1e-12F, codes, scales,
                                        stream);
            };
          }};
}

}  // namespace

std::vector<Case> quantized_kernels(std::int64_t tokens) {
  // A layer's gates in Qwen3-30B-A3B.
  return {decode_nf4("nf4 decode", 1, kRows, kCols), decode_nf4("nf4 decode of experts", 128, 768, 2048),
          decode_fp8(), encode_fp8(tokens, 4096), encode_fp8(tokens, 14336)};
}

}  // namespace lorikeet::bench
