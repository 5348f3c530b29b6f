#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_runtime.h>

#include <string>

#include "base/error.h"
#include "ops/quantized/float8.h"
#include "ops/quantized/float8_cuda.h"

namespace lorikeet::ops {
namespace {

constexpr int kThreads = 256;
constexpr std::int64_t kMostBlocks = 65535;

__device__ void narrow(float value, float& out) { out = value; }
__device__ void narrow(float value, __half& out) { out = __float2half_rn(value); }
__device__ void narrow(float value, __nv_bfloat16& out) { out = __float2bfloat16_rn(value); }

// Four numbers of a row a thread, in strides; `cols` is a multiple of `kEach`.
template <typename T, int kEach>
__global__ void decode_float8_kernel(const std::uint8_t* codes, const float* scales, std::int64_t cols,
                                     std::int64_t block_rows, std::int64_t block_cols,
                                     std::int64_t scale_cols, std::int64_t first, std::int64_t groups,
                                     T* out) {
  const std::int64_t stride = static_cast<std::int64_t>(gridDim.x) * blockDim.x;
  std::int64_t group = static_cast<std::int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
  for (; group < groups; group += stride) {
    const std::int64_t at = group * kEach, row = first + at / cols, col = at % cols;
    const float* row_scales = scales + row / block_rows * scale_cols;
    const std::uint8_t* from = codes + row * cols + col;
    alignas(4) std::uint8_t read[kEach];
    if (kEach == 4) {
      // Aligned: matrices are, and rows are multiples of four bytes.
      *reinterpret_cast<std::uint32_t*>(read) = *reinterpret_cast<const std::uint32_t*>(from);
    } else {
      for (int i = 0; i < kEach; ++i) read[i] = from[i];
    }
    for (int i = 0; i < kEach; ++i)
      narrow(float8_value(read[i]) * row_scales[(col + i) / block_cols], out[at + i]);
  }
}

template <typename T, int kEach>
void launch(const Float8Matrix& matrix, std::int64_t first, std::int64_t rows, void* out,
            cudaStream_t stream) {
  const std::int64_t groups = rows * matrix.cols / kEach, blocks = (groups + kThreads - 1) / kThreads;
  const auto grid = static_cast<unsigned>(blocks < kMostBlocks ? blocks : kMostBlocks);
  decode_float8_kernel<T, kEach><<<grid, kThreads, 0, stream>>>(
      matrix.codes, matrix.scales, matrix.cols, matrix.block_rows, matrix.block_cols, matrix.scale_cols,
      first, groups, static_cast<T*>(out));
}

template <typename T>
void launch_of(const Float8Matrix& matrix, std::int64_t first, std::int64_t rows, void* out,
               cudaStream_t stream) {
  if (matrix.cols % 4 == 0) {
    launch<T, 4>(matrix, first, rows, out, stream);
  } else {
    launch<T, 1>(matrix, first, rows, out, stream);
  }
}

}  // namespace

void launch_decode_float8(const Float8Matrix& matrix, std::int64_t first, std::int64_t rows,
                          DecodedElement element, void* out, void* stream) {
  if (rows * matrix.cols == 0) return;
  const auto on = static_cast<cudaStream_t>(stream);
  switch (element) {
    case DecodedElement::kF32: launch_of<float>(matrix, first, rows, out, on); break;
    case DecodedElement::kF16: launch_of<__half>(matrix, first, rows, out, on); break;
    case DecodedElement::kBF16: launch_of<__nv_bfloat16>(matrix, first, rows, out, on); break;
  }
  const cudaError_t status = cudaGetLastError();
  if (status != cudaSuccess) {
    throw Error(std::string("[fp8] expected the kernel to start, got ") + cudaGetErrorString(status),
                ErrorKind::kRunFailed);
  }
}

}  // namespace lorikeet::ops
