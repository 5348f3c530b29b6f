#pragma once

// Included by .cu files alone: elements as fp32 numbers, and 16-byte accesses of several elements.
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_runtime.h>

#include <cstddef>
#include <cstdint>
#include <string>

#include "base/error.h"
#include "ops/cuda_element.h"

namespace lorikeet::ops::device {

inline constexpr std::int64_t kVectorBytes = 16;
inline constexpr std::int64_t kMostBlocksX = 2147483647, kMostBlocksY = 65535;

/// Elements of one access: 16 bytes of them, or one where rows aren't aligned to that.
template <typename T, bool aligned>
inline constexpr int kElements = aligned ? kVectorBytes / static_cast<int>(sizeof(T)) : 1;

// Bits, not elements: nvcc copies a struct of __nv_bfloat162 member by member, in narrow accesses.
template <int bytes>
struct Bits;
template <>
struct alignas(16) Bits<16> {
  unsigned words[4];
};
template <>
struct alignas(8) Bits<8> {
  unsigned words[2];
};
template <>
struct Bits<4> {
  unsigned words[1];
};
template <>
struct Bits<2> {
  unsigned short words[1];
};
template <>
struct Bits<1> {
  unsigned char words[1];
};

/// `n` neighbouring elements as they lie in memory.
template <typename T, int n>
using Pack = Bits<n* static_cast<int>(sizeof(T))>;

#ifdef __CUDACC__
template <typename Access>
__device__ __forceinline__ void check_access(const void* /*at*/) {}
#else
// A GPU ends a launch whose access isn't aligned to its size; a host would do it.
void fail_access(const void* at, std::size_t bytes);
template <typename Access>
void check_access(const void* at) {
  if (reinterpret_cast<std::uintptr_t>(at) % sizeof(Access) != 0) fail_access(at, sizeof(Access));
}
#endif

template <int n, typename T>
__device__ __forceinline__ Pack<T, n> load_pack(const T* from) {
  check_access<Pack<T, n>>(from);
  return *reinterpret_cast<const Pack<T, n>*>(from);
}
template <int n, typename T>
__device__ __forceinline__ void store_pack(const Pack<T, n>& pack, T* to) {
  check_access<Pack<T, n>>(to);
  // An assignment of several words may be split into narrow stores.
  if constexpr (sizeof(pack) <= sizeof(unsigned)) {
    *reinterpret_cast<Pack<T, n>*>(to) = pack;
  } else if constexpr (sizeof(pack) == sizeof(uint2)) {
    __stwb(reinterpret_cast<uint2*>(to), make_uint2(pack.words[0], pack.words[1]));
  } else {
    __stwb(reinterpret_cast<uint4*>(to),
           make_uint4(pack.words[0], pack.words[1], pack.words[2], pack.words[3]));
  }
}

__device__ __forceinline__ float widen(float value) { return value; }
__device__ __forceinline__ float widen(__half value) { return __half2float(value); }
__device__ __forceinline__ float widen(__nv_bfloat16 value) { return __bfloat162float(value); }
/// Round to nearest, ties to even.
__device__ __forceinline__ void narrow(float value, float& out) { out = value; }
__device__ __forceinline__ void narrow(float value, __half& out) { out = __float2half_rn(value); }
__device__ __forceinline__ void narrow(float value, __nv_bfloat16& out) { out = __float2bfloat16_rn(value); }

template <typename T, int n>
__device__ __forceinline__ void unpack(const Pack<T, n>& pack, float (&out)[n]) {
  const T* elements = reinterpret_cast<const T*>(&pack);
#pragma unroll
  for (int i = 0; i < n; ++i) out[i] = widen(elements[i]);
}
template <typename T, int n>
__device__ __forceinline__ Pack<T, n> pack(const float (&in)[n]) {
  Pack<T, n> packed;
  T* elements = reinterpret_cast<T*>(&packed);
#pragma unroll
  for (int i = 0; i < n; ++i) narrow(in[i], elements[i]);
  return packed;
}

/// Rounds `n` numbers, a multiple of those of an access, and stores them; `to` is aligned to 16 bytes.
template <int n, typename T>
__device__ __forceinline__ void store_rounded(const float (&values)[n], T* to) {
  constexpr int kEach = kElements<T, true>;
#pragma unroll
  for (int i = 0; i < n; i += kEach) {
    float part[kEach];
#pragma unroll
    for (int j = 0; j < kEach; ++j) part[j] = values[i + j];
    store_pack<kEach>(pack<T, kEach>(part), to + i);
  }
}

/// `n` fp32 numbers: n is 1 or a multiple of 4, and then `from` is aligned to 16 bytes.
template <int n>
__device__ __forceinline__ void load_floats(const float* from, float (&out)[n]) {
  if constexpr (n == 1) {
    out[0] = *from;
  } else {
#pragma unroll
    for (int i = 0; i < n; i += 4) {
      check_access<float4>(from + i);
      const float4 four = *reinterpret_cast<const float4*>(from + i);
      out[i] = four.x, out[i + 1] = four.y, out[i + 2] = four.z, out[i + 3] = four.w;
    }
  }
}

inline bool is_aligned(const void* pointer) {
  return reinterpret_cast<std::uintptr_t>(pointer) % static_cast<std::uintptr_t>(kVectorBytes) == 0;
}

/// Blocks that take `count` items, `of_block` each; with `most` of them blocks have to take further turns.
inline unsigned blocks_of(std::int64_t count, std::int64_t of_block, std::int64_t most = kMostBlocksX) {
  const std::int64_t blocks = (count + of_block - 1) / of_block;
  return static_cast<unsigned>(blocks < most ? blocks : most);
}
/// A grid for kernels whose threads have their place in a row: blocks along x take `of_block` of its columns
/// each, along y they take every gridDim.y-th row.
inline dim3 grid_of_rows(std::int64_t rows, std::int64_t cols, std::int64_t of_block) {
  return {blocks_of(cols, of_block), blocks_of(rows, 1, kMostBlocksY)};
}

/// A pointer that many bytes further on, a multiple of its alignment.
template <typename T>
__device__ __forceinline__ const T* shifted(const T* pointer, std::int64_t bytes) {
  return reinterpret_cast<const T*>(reinterpret_cast<const char*>(pointer) + bytes);
}

/// Calls f with a null pointer of the element type.
template <typename F>
void dispatch(CudaElement element, const F& f) {
  switch (element) {
    case CudaElement::kF32: return f(static_cast<float*>(nullptr));
    case CudaElement::kF16: return f(static_cast<__half*>(nullptr));
    case CudaElement::kBF16: return f(static_cast<__nv_bfloat16*>(nullptr));
  }
}

/// Throws Error("[op] ...") where the last launch failed to start, or where a launch before it, perhaps of
/// another operator, has failed since: CUDA reports such a fault with whatever comes next.
inline void check_launch(const char* op, cudaError_t status) {
  if (status == cudaSuccess) return;
  const std::string place = std::string("[") + op + "] ", said = cudaGetErrorString(status);
  for (const cudaError_t of_launch :
       {cudaErrorInvalidValue, cudaErrorMemoryAllocation, cudaErrorInvalidConfiguration,
        cudaErrorInvalidDeviceFunction, cudaErrorNoKernelImageForDevice, cudaErrorLaunchOutOfResources})
    if (status == of_launch)
      throw Error(place + "expected the kernel to start, got " + said, ErrorKind::kRunFailed);
  throw Error(place + "this kernel or one before it failed: " + said +
                  "; with CUDA_LAUNCH_BLOCKING=1 in the environment the one that is named is at fault",
              ErrorKind::kRunFailed);
}

}  // namespace lorikeet::ops::device
