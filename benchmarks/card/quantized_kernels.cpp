#include <string>

#include "kernels.h"
#include "ops/quantized/dequantize_cuda.h"
#include "ops/quantized/float8_cuda.h"

namespace lorikeet::bench {
namespace {

constexpr auto kElement = ops::CudaElement::kBF16;
constexpr std::int64_t kBF16 = 2, kFP32 = 4;  // bytes
// Rows and columns of a frozen matrix.
constexpr std::int64_t kRows = 14336, kCols = 4096;

// Blocks and nested blocks of precision::FourBits. The books' numbers aren't NF4's, which takes no other
// time.
Case decode_nf4() {
  constexpr std::int64_t kCount = kRows * kCols, kBlock = 64, kNestedBlock = 256;
  constexpr std::int64_t kScales = kCount / kBlock, kNestedScales = kScales / kNestedBlock;
  constexpr std::int64_t kBook = 16, kNestedBook = 256;
  static_assert(kScales % kNestedBlock == 0);
  return {.kernel = "nf4 decode",
          .shape = matrix(kRows, kCols),
          .bytes = kCount / 2 + kScales + (kNestedScales + kNestedBook + 1 + kBook) * kFP32 + kCount * kBF16,
          .make = [](DeviceMemory& memory) -> Launch {
            const ops::QuantizedParts parts{.codes = memory.bytes(kCount / 2),
                                            .scale_codes = memory.bytes(kScales),
                                            .scales = memory.fp32(kNestedScales),
                                            .nested_book = memory.fp32(kNestedBook),
                                            .offset = memory.fp32(1),
                                            .book = memory.fp32(kBook),
                                            .block = kBlock,
                                            .nested_block = kNestedBlock};
            void* const out = memory.bf16(kCount);
            return
                [=](cudaStream_t stream) { ops::launch_dequantize(parts, 0, kCount, kElement, out, stream); };
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
              ops::launch_decode_float8(weights, 0, kRows, kElement, out, stream);
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
  return {decode_nf4(), decode_fp8(), encode_fp8(tokens, 4096), encode_fp8(tokens, 14336)};
}

}  // namespace lorikeet::bench
