#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_runtime.h>

#include <string>

#include "base/error.h"
#include "ops/lora/dropout_mask.h"

namespace lorikeet::ops {
namespace {

constexpr int kThreads = 256;

__device__ float widen(float value) { return value; }
__device__ float widen(__half value) { return __half2float(value); }
__device__ float widen(__nv_bfloat16 value) { return __bfloat162float(value); }
__device__ void narrow(float value, float& out) { out = value; }
__device__ void narrow(float value, __half& out) { out = __float2half_rn(value); }
__device__ void narrow(float value, __nv_bfloat16& out) { out = __float2bfloat16_rn(value); }

// One thread a block of four features, which is one Philox call; rows go over gridDim.y in strides.
template <typename T>
__global__ void dropout_kernel(const T* x, T* out, std::int64_t rows, std::int64_t features,
                               const std::int64_t* sample_ids, const std::int64_t* position_ids,
                               DropoutKey key) {
  const std::int64_t block = static_cast<std::int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
  if (block * 4 >= features) return;
  for (std::int64_t row = blockIdx.y; row < rows; row += gridDim.y) {
    const DropoutWords words =
        dropout_block(key, sample_ids[row], position_ids[row], static_cast<std::uint32_t>(block));
    for (int i = 0; i < 4 && block * 4 + i < features; ++i) {
      const std::int64_t at = row * features + block * 4 + i;
      narrow(words.v[i] >= key.threshold ? widen(x[at]) * key.scale : 0.0F, out[at]);
    }
  }
}

template <typename T>
void launch(const void* x, void* out, std::int64_t rows, std::int64_t features,
            const std::int64_t* sample_ids, const std::int64_t* position_ids, const DropoutKey& key,
            cudaStream_t stream) {
  const auto blocks = (features + 3) / 4;
  const dim3 grid(static_cast<unsigned>((blocks + kThreads - 1) / kThreads),
                  static_cast<unsigned>(rows < 65535 ? rows : 65535));
  dropout_kernel<T><<<grid, kThreads, 0, stream>>>(static_cast<const T*>(x), static_cast<T*>(out), rows,
                                                   features, sample_ids, position_ids, key);
}

}  // namespace

void launch_dropout(DropoutElement element, const void* x, void* out, std::int64_t rows,
                    std::int64_t features, const std::int64_t* sample_ids, const std::int64_t* position_ids,
                    const DropoutKey& key, void* stream) {
  if (rows == 0 || features == 0) return;
  const auto on = static_cast<cudaStream_t>(stream);
  switch (element) {
    case DropoutElement::kF32:
      launch<float>(x, out, rows, features, sample_ids, position_ids, key, on);
      break;
    case DropoutElement::kF16:
      launch<__half>(x, out, rows, features, sample_ids, position_ids, key, on);
      break;
    case DropoutElement::kBF16:
      launch<__nv_bfloat16>(x, out, rows, features, sample_ids, position_ids, key, on);
      break;
  }
  const cudaError_t status = cudaGetLastError();
  if (status != cudaSuccess) {
    throw Error(std::string("[dropout] expected the kernel to start, got ") + cudaGetErrorString(status),
                ErrorKind::kRunFailed);
  }
}

}  // namespace lorikeet::ops
