#include "ops/quantized/dequantize_cuda.h"

#include <type_traits>

#include "ops/cuda_vector.h"

namespace lorikeet::ops {
namespace {

constexpr int kThreads = 256, kBook = 16;
constexpr std::int64_t kMostBlocks = 65535, kGroup = 8;

// The scale of a block, from the scale of the nested block that it lies in. Multiplied and added in two
// roundings, as on the CPU.
__device__ __forceinline__ float nested_scale(float number, float scale, float offset) {
  return __fadd_rn(__fmul_rn(number, scale), offset);
}

// From the parts of the stack's first tensor to those of another.
__device__ __forceinline__ void to_tensor(std::int64_t bytes, const std::uint8_t*& codes, const float*& book,
                                          const std::uint8_t*& scale_codes, const float*& scales,
                                          const float*& nested_book, const float*& offset) {
  codes += bytes;
  scale_codes += bytes;
  book = device::shifted(book, bytes);
  scales = device::shifted(scales, bytes);
  nested_book = device::shifted(nested_book, bytes);
  offset = device::shifted(offset, bytes);
}

// One thread a byte of codes, in strides: any range of any blocks. A tensor of the stack for each of
// gridDim.y.
template <typename T>
__global__ void dequantize_kernel(const std::uint8_t* codes, const float* book,
                                  const std::uint8_t* scale_codes, const float* scales,
                                  const float* nested_book, const float* offset, std::int64_t block,
                                  std::int64_t nested_block, std::int64_t first, std::int64_t count,
                                  std::int64_t bytes_apart, std::int64_t out_apart, T* out) {
  to_tensor(blockIdx.y * bytes_apart, codes, book, scale_codes, scales, nested_book, offset);
  out += blockIdx.y * out_apart;
  const std::int64_t end = first + count, stride = static_cast<std::int64_t>(gridDim.x) * kThreads;
  const std::int64_t thread = static_cast<std::int64_t>(blockIdx.x) * kThreads + threadIdx.x;
  for (std::int64_t byte = first / 2 + thread; byte < (end + 1) / 2; byte += stride) {
    // A block has an even number of elements: both are in the same one.
    const std::int64_t at = 2 * byte / block;
    float scale = scales[nested_block == 0 ? at : at / nested_block];
    if (nested_block != 0) scale = nested_scale(nested_book[scale_codes[at]], scale, *offset);
    if (2 * byte >= first) device::narrow(book[codes[byte] >> 4] * scale, out[2 * byte - first]);
    if (2 * byte + 1 < end) device::narrow(book[codes[byte] & 15] * scale, out[2 * byte + 1 - first]);
  }
}

// One thread eight numbers, in strides: blocks of a power of two, 2^block_bits, of which 2^nested_bits share
// a nested scale (nested_bits < 0: none); tensors as above. Codes are read and numbers written in one access
// each, 16 bytes of 16-bit numbers; the book is in shared memory, where threads read different numbers of it
// at once.
template <typename T>
__global__ void __launch_bounds__(kThreads)
    dequantize_groups_kernel(const std::uint8_t* codes, const float* book, const std::uint8_t* scale_codes,
                             const float* scales, const float* nested_book, const float* offset,
                             int block_bits, int nested_bits, std::int64_t first, std::int64_t groups,
                             std::int64_t bytes_apart, std::int64_t out_apart, T* out) {
  to_tensor(blockIdx.y * bytes_apart, codes, book, scale_codes, scales, nested_book, offset);
  out += blockIdx.y * out_apart;
  __shared__ float numbers[kBook];
  if (threadIdx.x < kBook) numbers[threadIdx.x] = book[threadIdx.x];
  __syncthreads();
  const std::int64_t stride = static_cast<std::int64_t>(gridDim.x) * kThreads;
  std::int64_t group = static_cast<std::int64_t>(blockIdx.x) * kThreads + threadIdx.x;
  for (; group < groups; group += stride) {
    const std::int64_t at = first + group * kGroup, block = at >> block_bits;
    const unsigned word = *reinterpret_cast<const unsigned*>(codes + at / 2);
    float scale = scales[nested_bits < 0 ? block : block >> nested_bits];
    if (nested_bits >= 0) scale = nested_scale(nested_book[scale_codes[block]], scale, *offset);
    float values[kGroup];
#pragma unroll
    for (int i = 0; i < kGroup; i += 2) {
      const unsigned byte = word >> (4 * i);
      values[i] = numbers[byte >> 4 & 15U] * scale;
      values[i + 1] = numbers[byte & 15U] * scale;
    }
    device::store_rounded<kGroup>(values, out + group * kGroup);
  }
}

// The exponent of a power of two; -1 for other numbers.
int bits_of(std::int64_t number) {
  int bits = 0;
  while (number > std::int64_t{1} << bits) ++bits;
  return number == std::int64_t{1} << bits ? bits : -1;
}

bool in_groups(const QuantizedParts& parts, const QuantizedStack& stack, std::int64_t first,
               std::int64_t count, const void* out) {
  return stack.bytes_apart % 16 == 0 && stack.out_apart % kGroup == 0 && first % kGroup == 0 &&
         count % kGroup == 0 && parts.block >= kGroup && bits_of(parts.block) >= 0 &&
         (parts.nested_block == 0 || bits_of(parts.nested_block) >= 0) && device::is_aligned(parts.codes) &&
         device::is_aligned(out);
}

dim3 grid_of(std::int64_t threads, const QuantizedStack& stack) {
  return {device::blocks_of(threads, kThreads, kMostBlocks), static_cast<unsigned>(stack.count)};
}

template <typename T>
void launch(const QuantizedParts& parts, const QuantizedStack& stack, std::int64_t first, std::int64_t count,
            T* out, cudaStream_t stream) {
  const bool nested = parts.nested_block != 0;
  // A kernel's pointers all point somewhere: without nested scales to what it doesn't read.
  const std::uint8_t* scale_codes = nested ? parts.scale_codes : parts.codes;
  const float* nested_book = nested ? parts.nested_book : parts.book;
  const float* offset = nested ? parts.offset : parts.book;
  if (in_groups(parts, stack, first, count, out)) {
    dequantize_groups_kernel<T><<<grid_of(count / kGroup, stack), kThreads, 0, stream>>>(
        parts.codes, parts.book, scale_codes, parts.scales, nested_book, offset, bits_of(parts.block),
        nested ? bits_of(parts.nested_block) : -1, first, count / kGroup, stack.bytes_apart, stack.out_apart,
        out);
  } else {
    dequantize_kernel<T><<<grid_of(count / 2 + 1, stack), kThreads, 0, stream>>>(
        parts.codes, parts.book, scale_codes, parts.scales, nested_book, offset, parts.block,
        parts.nested_block, first, count, stack.bytes_apart, stack.out_apart, out);
  }
}

}  // namespace

void launch_dequantize(const QuantizedParts& parts, const QuantizedStack& stack, std::int64_t first,
                       std::int64_t count, CudaElement element, void* out, void* stream) {
  if (count * stack.count == 0) return;
  device::dispatch(element, [&](auto* typed) {
    using T = std::remove_pointer_t<decltype(typed)>;
    launch(parts, stack, first, count, static_cast<T*>(out), static_cast<cudaStream_t>(stream));
  });
  device::check_launch("dequantize", cudaGetLastError());
}

}  // namespace lorikeet::ops
