#pragma once

// Included by .cu files alone: products of small matrices on tensor cores (compute capability 8.0 and above),
// which a warp does together, and copies into shared memory that go on beside it. Source: the PTX ISA,
// "Matrix multiply-accumulate operation using mma instruction" (m16n8k16 and m16n8k8), "ldmatrix",
// "movmatrix" and "cp.async". Off a card tests/card/tensor_core.cpp computes the same.
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_runtime.h>

#include "ops/cuda_element.h"

namespace lorikeet::ops::device {

// What a lane holds. With group = lane / 4 and pair = 2 * (lane % 4), two 16-bit elements a register:
//   Left [16, 16]: rows group, group + 8, group, group + 8 of columns pair (twice) and pair + 8 (twice);
//   Right [16, 8]: column group of rows pair and pair + 8;
//   Sum [16, 8] in fp32: columns pair and pair + 1 of row group, then of row group + 8.
struct Left {
  unsigned words[4];
};
struct Right {
  unsigned words[2];
};
struct Sum {
  float values[4];
};
// Operands of half the inner dimension: Left [16, 8] without its last two words, Right [8, 8] without its
// last.
struct LeftHalf {
  unsigned words[2];
};

/// Whether what uses them was compiled for a GPU of this compute capability (10 * major + minor). A GPU runs
/// the code of its own generation, or what was compiled for the last one before it.
inline bool has_tensor_core_code(int capability) {
  constexpr int kAmpere = 80;
#ifdef __CUDA_ARCH_LIST__
  constexpr int kCompiled[] = {__CUDA_ARCH_LIST__};
  int newest = 0;
  for (const int arch : kCompiled) {
    if (arch / 10 <= capability && arch / 10 > newest) newest = arch / 10;
  }
  return newest >= kAmpere;
#else
  return capability >= kAmpere;
#endif
}

/// Calls f with a null pointer of the element type, of 16 bits.
template <typename F>
void dispatch_16_bits(CudaElement element, const F& f) {
  if (element == CudaElement::kBF16) {
    f(static_cast<__nv_bfloat16*>(nullptr));
  } else {
    f(static_cast<__half*>(nullptr));
  }
}

/// Where a chunk of 16 bytes of a row lies in shared memory, so that load_matrices finds the same chunk of
/// eight rows below each other in different banks; rows have `chunks`.
template <int chunks>
__device__ __forceinline__ int swizzled(int row, int chunk) {
  constexpr int kBankChunks = 8;  // 128 bytes
  static_assert(kBankChunks % chunks == 0 || chunks % kBankChunks == 0);
  if constexpr (chunks < kBankChunks) return row * chunks + (chunk ^ (row / (kBankChunks / chunks) % chunks));
  return row * chunks + (chunk ^ (row % kBankChunks));
}

#ifdef __CUDACC__

#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ < 800
// Never launched there.
#define LORIKEET_TENSOR_CORE_ASM(...) __trap()
#else
#define LORIKEET_TENSOR_CORE_ASM(...) asm volatile(__VA_ARGS__)
#endif

__device__ __forceinline__ unsigned shared_address(const void* shared) {
  return static_cast<unsigned>(__cvta_generic_to_shared(shared));
}

/// Four matrices [8, 8] of 16-bit elements from shared memory, one a word: lane l gives the address of row
/// l % 8 of matrix l / 8, of 16 bytes. A lane gets of each the elements (group, pair) and (group, pair + 1).
__device__ __forceinline__ void load_matrices(const void* row, unsigned (&words)[4]) {
  LORIKEET_TENSOR_CORE_ASM("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                           : "=r"(words[0]), "=r"(words[1]), "=r"(words[2]), "=r"(words[3])
                           : "r"(shared_address(row)));
}

/// The same of the matrices' transposes: a lane gets (pair, group) and (pair + 1, group).
__device__ __forceinline__ void load_transposed(const void* row, unsigned (&words)[4]) {
  LORIKEET_TENSOR_CORE_ASM("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
                           : "=r"(words[0]), "=r"(words[1]), "=r"(words[2]), "=r"(words[3])
                           : "r"(shared_address(row)));
}

/// A matrix [8, 8] of 16-bit elements, of which a lane has (group, pair) and (group, pair + 1), transposed:
/// it gets (pair, group) and (pair + 1, group).
__device__ __forceinline__ unsigned transposed(unsigned word) {
  unsigned out = 0;
  LORIKEET_TENSOR_CORE_ASM("movmatrix.sync.aligned.m8n8.trans.b16 %0, %1;" : "=r"(out) : "r"(word));
  return out;
}

/// sum += left right.
template <typename T>
__device__ __forceinline__ void multiply_add(Sum& sum, const Left& left, const Right& right);
#define LORIKEET_MULTIPLY_ADD(element)                                                                       \
  LORIKEET_TENSOR_CORE_ASM(                                                                                  \
      "mma.sync.aligned.m16n8k16.row.col.f32." element "." element                                           \
      ".f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"                                 \
      : "+f"(sum.values[0]), "+f"(sum.values[1]), "+f"(sum.values[2]), "+f"(sum.values[3])                   \
      : "r"(left.words[0]), "r"(left.words[1]), "r"(left.words[2]), "r"(left.words[3]), "r"(right.words[0]), \
        "r"(right.words[1]))
template <>
__device__ __forceinline__ void multiply_add<__nv_bfloat16>(Sum& sum, const Left& left, const Right& right) {
  LORIKEET_MULTIPLY_ADD("bf16");
}
template <>
__device__ __forceinline__ void multiply_add<__half>(Sum& sum, const Left& left, const Right& right) {
  LORIKEET_MULTIPLY_ADD("f16");
}
#undef LORIKEET_MULTIPLY_ADD

/// The same of half the inner dimension.
template <typename T>
__device__ __forceinline__ void multiply_add(Sum& sum, const LeftHalf& left, unsigned right);
#define LORIKEET_MULTIPLY_ADD(element)                                                      \
  LORIKEET_TENSOR_CORE_ASM("mma.sync.aligned.m16n8k8.row.col.f32." element "." element      \
                           ".f32 {%0, %1, %2, %3}, {%4, %5}, {%6}, {%0, %1, %2, %3};"       \
                           : "+f"(sum.values[0]), "+f"(sum.values[1]), "+f"(sum.values[2]), \
                             "+f"(sum.values[3])                                            \
                           : "r"(left.words[0]), "r"(left.words[1]), "r"(right))
template <>
__device__ __forceinline__ void multiply_add<__nv_bfloat16>(Sum& sum, const LeftHalf& left, unsigned right) {
  LORIKEET_MULTIPLY_ADD("bf16");
}
template <>
__device__ __forceinline__ void multiply_add<__half>(Sum& sum, const LeftHalf& left, unsigned right) {
  LORIKEET_MULTIPLY_ADD("f16");
}
#undef LORIKEET_MULTIPLY_ADD

/// Begins to copy 16 bytes into shared memory, both sides aligned to that; zeros unless `is_there`, and then
/// nothing is read.
__device__ __forceinline__ void begin_copy(void* shared, const void* from, bool is_there) {
  LORIKEET_TENSOR_CORE_ASM("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(shared_address(shared)),
                           "l"(from), "r"(is_there ? 16 : 0));
}

/// Ends a group of copies of this thread: those that it began since the last one.
__device__ __forceinline__ void end_group() { LORIKEET_TENSOR_CORE_ASM("cp.async.commit_group;" ::); }

/// Waits until at most `groups` of this thread's groups are under way.
template <int groups>
__device__ __forceinline__ void wait_for_groups() {
  LORIKEET_TENSOR_CORE_ASM("cp.async.wait_group %0;" ::"n"(groups) : "memory");
}

/// Keeps the compiler from moving later loads above this place, where they would need more registers.
__device__ __forceinline__ void end_of_loads() { asm volatile("" ::: "memory"); }

#undef LORIKEET_TENSOR_CORE_ASM

#else

void load_matrices(const void* row, unsigned (&words)[4]);
void load_transposed(const void* row, unsigned (&words)[4]);
unsigned transposed(unsigned word);
template <typename T>
void multiply_add(Sum& sum, const Left& left, const Right& right);
template <typename T>
void multiply_add(Sum& sum, const LeftHalf& left, unsigned right) {
  multiply_add<T>(sum, Left{{left.words[0], left.words[1], 0, 0}}, Right{{right, 0}});
}
void begin_copy(void* shared, const void* from, bool is_there);
void end_group();
inline void end_of_loads() {}
void wait_for_all_but(int groups);
template <int groups>
void wait_for_groups() {
  wait_for_all_but(groups);
}

#endif

}  // namespace lorikeet::ops::device
