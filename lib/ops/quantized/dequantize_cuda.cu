#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_runtime.h>

#include <string>

#include "base/error.h"
#include "ops/quantized/dequantize_cuda.h"

namespace lorikeet::ops {
namespace {

constexpr int kThreads = 256;
constexpr std::int64_t kMostBlocks = 65535;

__device__ void narrow(float value, float& out) { out = value; }
__device__ void narrow(float value, __half& out) { out = __float2half_rn(value); }
__device__ void narrow(float value, __nv_bfloat16& out) { out = __float2bfloat16_rn(value); }

// One thread a byte of codes, in strides. `nested_block` is 0 where scales are fp32: then they alone of what
// scales are made of are read.
template <typename T>
__global__ void dequantize_kernel(const std::uint8_t* codes, const float* book,
                                  const std::uint8_t* scale_codes, const float* scales,
                                  const float* nested_book, const float* offset, std::int64_t block,
                                  std::int64_t nested_block, std::int64_t first, std::int64_t count, T* out) {
  const std::int64_t end = first + count, stride = static_cast<std::int64_t>(gridDim.x) * blockDim.x;
  const std::int64_t thread = static_cast<std::int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
  for (std::int64_t byte = first / 2 + thread; byte < (end + 1) / 2; byte += stride) {
    // A block has an even number of elements: both are in the same one.
    const std::int64_t at = 2 * byte / block;
    float scale = scales[nested_block == 0 ? at : at / nested_block];
    // Multiplied and added in two roundings, as on the CPU.
    if (nested_block != 0) scale = __fadd_rn(__fmul_rn(nested_book[scale_codes[at]], scale), *offset);
    if (2 * byte >= first) narrow(book[codes[byte] >> 4] * scale, out[2 * byte - first]);
    if (2 * byte + 1 < end) narrow(book[codes[byte] & 15] * scale, out[2 * byte + 1 - first]);
  }
}

template <typename T>
void launch(const QuantizedParts& parts, std::int64_t first, std::int64_t count, void* out,
            cudaStream_t stream) {
  const std::int64_t bytes = count / 2 + 1, blocks = (bytes + kThreads - 1) / kThreads;
  const auto grid = static_cast<unsigned>(blocks < kMostBlocks ? blocks : kMostBlocks);
  const bool nested = parts.nested_block != 0;
  const std::uint8_t* scale_codes = nested ? parts.scale_codes : parts.codes;
  const float* nested_book = nested ? parts.nested_book : parts.book;
  const float* offset = nested ? parts.offset : parts.book;
  dequantize_kernel<T><<<grid, kThreads, 0, stream>>>(parts.codes, parts.book, scale_codes, parts.scales,
                                                      nested_book, offset, parts.block, parts.nested_block,
                                                      first, count, static_cast<T*>(out));
}

}  // namespace

void launch_dequantize(const QuantizedParts& parts, std::int64_t first, std::int64_t count,
                       DecodedElement element, void* out, void* stream) {
  if (count == 0) return;
  const auto on = static_cast<cudaStream_t>(stream);
  switch (element) {
    case DecodedElement::kF32: launch<float>(parts, first, count, out, on); break;
    case DecodedElement::kF16: launch<__half>(parts, first, count, out, on); break;
    case DecodedElement::kBF16: launch<__nv_bfloat16>(parts, first, count, out, on); break;
  }
  const cudaError_t status = cudaGetLastError();
  if (status != cudaSuccess) {
    throw Error(std::string("[dequantize] expected the kernel to start, got ") + cudaGetErrorString(status),
                ErrorKind::kRunFailed);
  }
}

}  // namespace lorikeet::ops
