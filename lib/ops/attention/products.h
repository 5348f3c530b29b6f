#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

#include "ops/vector.h"

// The products of tiles in the CPU's attention, by oneDNN's small-product kernels (brgemm): fp32 operands, or
// bf16 operands where the CPU multiplies them natively, which is about twice as fast on AVX512-BF16. Sums are
// fp32 either way.
namespace lorikeet::ops::cpu {

/// Two bf16 numbers of one column: of an even row in the lower half, of the next row in the upper half.
struct Bf16Pair {
  std::uint32_t bits;
};

LORIKEET_INLINE Bf16Pair pair_of(vector::Bf16 even, vector::Bf16 odd) {
  return {static_cast<std::uint32_t>(even.bits) | static_cast<std::uint32_t>(odd.bits) << 16};
}

/// How a right operand [k, n] of elements E is stored: fp32 in rows, bf16 in pairs of rows [k / 2, n], the
/// order that the CPU's instructions for bf16 read.
template <typename E>
struct RightOperand;
template <>
struct RightOperand<float> {
  using Element = float;
  static constexpr std::int64_t kRows = 1;  ///< of the operand in one Element
};
template <>
struct RightOperand<vector::Bf16> {
  using Element = Bf16Pair;
  static constexpr std::int64_t kRows = 2;
};

/// Whether attention over `tensor` multiplies its tiles in bf16: it is bf16, products of it are native (see
/// multiplies_natively), and rows of a head can be paired. If not, they are widened to fp32.
bool multiplies_bf16(const at::Tensor& tensor, std::int64_t head_dim);

/// c [m, n] (+)= a [m, k] b [k, n]; row strides lda, ldb, ldc in elements (of b: in its stored elements). k
/// is even for bf16.
void multiply(std::int64_t m, std::int64_t n, std::int64_t k, const float* a, std::int64_t lda,
              const float* b, std::int64_t ldb, float* c, std::int64_t ldc, bool add);
void multiply(std::int64_t m, std::int64_t n, std::int64_t k, const vector::Bf16* a, std::int64_t lda,
              const Bf16Pair* b, std::int64_t ldb, float* c, std::int64_t ldc, bool add);

/// Gives back what products took of the calling thread's registers (AMX's tiles). To be called by each thread
/// when it is done.
void release_products();

}  // namespace lorikeet::ops::cpu
