#include "ops/matmul/tiles.h"

#include <bit>

#include "ops/vector.h"

namespace lorikeet::ops::tiles {
namespace {

using vector::Bf16;

template <typename T, int n>
struct VectorOf {
  using Type __attribute__((vector_size(n * sizeof(T)), aligned(sizeof(T)), may_alias)) = T;
};
template <typename T, int n>
using Vector = typename VectorOf<T, n>::Type;

// What a kernel does with vectors of n sums.
template <int n>
struct Fp32Arithmetic {
  using V = Vector<float, n>;
  static LORIKEET_INLINE void add_product(V& sum, float left, const V& right) { sum += left * right; }
  static LORIKEET_INLINE void round(const V& sum, Bf16* out) {
    for (int i = 0; i < n; ++i) vector::store(sum[i], out[i]);
  }
};

// The same with pairs, for CPUs that haven't the instruction.
struct PlainPairs : Fp32Arithmetic<16> {
  static LORIKEET_INLINE V first_of(const V& pairs) {
    return std::bit_cast<V>(std::bit_cast<Vector<std::uint32_t, 16>>(pairs) << 16);
  }
  static LORIKEET_INLINE V second_of(const V& pairs) {
    return std::bit_cast<V>(std::bit_cast<Vector<std::uint32_t, 16>>(pairs) & 0xFFFF0000U);
  }
  static LORIKEET_INLINE void add_product(V& sum, float left, const V& right) {
    const auto bits = std::bit_cast<std::uint32_t>(left);
    sum += std::bit_cast<float>(bits & 0xFFFF0000U) * second_of(right);
    sum += std::bit_cast<float>(bits << 16) * first_of(right);
  }
};

// clang takes no vectors of 64 bytes in assembly of functions without a target of their own.
#if defined(__x86_64__) && !defined(__clang__)
#define LORIKEET_FAST_PAIRS
// AVX512-BF16. Written as assembly, so that the functions around it need no target of their own.
struct FastPairs {
  using V = Vector<float, 16>;
  static LORIKEET_INLINE void add_product(V& sum, float left, const V& right) {
    const V row = {left, left, left, left, left, left, left, left,
                   left, left, left, left, left, left, left, left};
    asm("vdpbf16ps %2, %1, %0" : "+v"(sum) : "v"(row), "v"(right));
  }
  static LORIKEET_INLINE void round(const V& sum, Bf16* out) {
    Vector<std::uint16_t, 16> rounded;
    asm("vcvtneps2bf16 %1, %0" : "=v"(rounded) : "v"(sum));
    *reinterpret_cast<Vector<std::uint16_t, 16>*>(out) = rounded;
  }
};
#endif

// sums = left right, of tile t and sliver s. They stay in registers.
template <typename Arithmetic, int rows, int used, int vectors>
LORIKEET_INLINE void add_up(const Addend& of, std::int64_t t, std::int64_t s,
                            typename Arithmetic::V (&sums)[rows][used]) {
  using V = typename Arithmetic::V;
  constexpr int n = sizeof(V) / sizeof(float);
  const float* left = of.left + t * of.left_stride;
  const float* right = of.right + s * of.right_stride;
  V own[rows][used];
  for (int i = 0; i < rows; ++i)
    for (int j = 0; j < used; ++j) own[i][j] = V{};
  for (std::int64_t k = 0; k < of.inner; ++k) {
    V column[used];
    for (int j = 0; j < used; ++j) column[j] = *reinterpret_cast<const V*>(right + j * n);
    for (int i = 0; i < rows; ++i)
      for (int j = 0; j < used; ++j) Arithmetic::add_product(own[i][j], left[i], column[j]);
    left += rows;
    right += vectors * n;
  }
  for (int i = 0; i < rows; ++i)
    for (int j = 0; j < used; ++j) sums[i][j] = own[i][j];
}

// Where a vector of sums waits for the next call.
template <typename V>
LORIKEET_INLINE V* waiting(const Block& b, std::int64_t row, std::int64_t column) {
  return reinterpret_cast<V*>(b.sums + row * b.stride + column);
}

// A vector of sums, and a single one, to the output.
template <typename Arithmetic>
LORIKEET_INLINE void put_vector(const typename Arithmetic::V& sum, const Output& out, std::int64_t row,
                                std::int64_t column) {
  using V = typename Arithmetic::V;
  const std::int64_t at = row * out.stride + column;
  V value = sum;
  if (out.bias != nullptr) value += *reinterpret_cast<const V*>(out.bias + column);
  if (out.is_bf16) return Arithmetic::round(value, static_cast<Bf16*>(out.data) + at);
  V& target = *reinterpret_cast<V*>(static_cast<float*>(out.data) + at);
  target = out.add ? target + out.scale * value : value;
}

LORIKEET_INLINE void put_one(float sum, const Output& out, std::int64_t row, std::int64_t column) {
  const std::int64_t at = row * out.stride + column;
  const float value = out.bias != nullptr ? sum + out.bias[column] : sum;
  if (out.is_bf16) return vector::store(value, static_cast<Bf16*>(out.data)[at]);
  float& target = static_cast<float*>(out.data)[at];
  target = out.add ? target + out.scale * value : value;
}

// Tile t of rows and sliver s of columns. Each product's sums begin at zero: sums of sums round less than
// long ones.
template <typename Arithmetic, int rows, int used, int vectors>
LORIKEET_INLINE void multiply_tile(const Block& b, std::int64_t t, std::int64_t s) {
  using V = typename Arithmetic::V;
  constexpr int n = sizeof(V) / sizeof(float);
  V sums[rows][used], before[rows][used];
  bool adds = !b.first;
  if (adds) {
    for (int i = 0; i < rows; ++i)
      for (int j = 0; j < used; ++j) before[i][j] = *waiting<V>(b, t * rows + i, s * vectors * n + j * n);
  }
  const std::size_t terms = b.first ? b.terms.size() : 0;
  for (std::size_t i = 0; i < terms; ++i) {
    const TermAddend& term = b.terms[i];
    if (s < term.first || s >= term.last) continue;
    add_up<Arithmetic, rows, used, vectors>(term.product, t, s, sums);
    for (int i = 0; i < rows; ++i)
      for (int j = 0; j < used; ++j)
        before[i][j] = adds ? before[i][j] + term.scale * sums[i][j] : term.scale * sums[i][j];
    adds = true;
  }
  add_up<Arithmetic, rows, used, vectors>(b.product, t, s, sums);
  if (adds) {
    for (int i = 0; i < rows; ++i)
      for (int j = 0; j < used; ++j) sums[i][j] += before[i][j];
  }
  const std::int64_t row = t * rows, column = s * vectors * n;
  if (!b.last) {
    for (int i = 0; i < rows; ++i)
      for (int j = 0; j < used; ++j) *waiting<V>(b, row + i, column + j * n) = sums[i][j];
  } else if (row + rows <= b.out.rows && column + used * n <= b.out.columns) {
    for (int i = 0; i < rows; ++i)
      for (int j = 0; j < used; ++j) put_vector<Arithmetic>(sums[i][j], b.out, row + i, column + j * n);
  } else {
    for (std::int64_t i = 0; i < rows && row + i < b.out.rows; ++i) {
      const auto* const numbers = reinterpret_cast<const Vector<float, 1>*>(sums[i]);
      for (std::int64_t j = 0; j < used * n && column + j < b.out.columns; ++j)
        put_one(numbers[j][0], b.out, row + i, column + j);
    }
  }
}

// A sliver of the right operand stays in the inner caches while all tiles of the left one pass by. Of the
// last sliver only the vectors that the output has are computed.
template <typename Arithmetic, int rows, int vectors>
LORIKEET_INLINE void multiply_all(const Block& b) {
  constexpr std::int64_t kLanes = sizeof(typename Arithmetic::V) / sizeof(float);
  static_assert(vectors == 2);
  for (std::int64_t s = 0; s < b.slivers; ++s) {
    const bool half = b.out.columns - s * vectors * kLanes <= kLanes;
    for (std::int64_t t = 0; t < b.tiles; ++t) {
      if (half) {
        multiply_tile<Arithmetic, rows, 1, vectors>(b, t, s);
      } else {
        multiply_tile<Arithmetic, rows, vectors, vectors>(b, t, s);
      }
    }
  }
}

LORIKEET_VECTOR_CLONES void multiply_narrow(const Block& block) {
  multiply_all<Fp32Arithmetic<8>, kNarrow.rows, 2>(block);
}
LORIKEET_VECTOR_CLONES void multiply_wide(const Block& block) {
  multiply_all<Fp32Arithmetic<16>, kWide.rows, 2>(block);
}
LORIKEET_VECTOR_CLONES void multiply_pairs_plainly(const Block& block) {
  multiply_all<PlainPairs, kPairs.rows, 2>(block);
}
#if defined(LORIKEET_FAST_PAIRS)
__attribute__((target("arch=x86-64-v4"))) void multiply_pairs(const Block& block) {
  multiply_all<FastPairs, kPairs.rows, 2>(block);
}
#else
void multiply_pairs(const Block& block) { multiply_pairs_plainly(block); }
#endif

}  // namespace

Kernel kernel_of_cpu() {
#if defined(__x86_64__)
  // What x86-64-v4 asks for, the highest level of the clones.
  if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
      __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl"))
    return kWide;
#endif
  return kNarrow;
}

bool fast_on_cpu() {
#if defined(__x86_64__)
  return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
#else
  return true;
#endif
}

bool fast_pairs_on_cpu() {
#if defined(LORIKEET_FAST_PAIRS)
  return kernel_of_cpu().rows == kPairs.rows && __builtin_cpu_supports("avx512bf16");
#else
  return false;
#endif
}

void multiply(const Block& block, const Kernel& kernel) {
  if (kernel.pairs) {
    (fast_pairs_on_cpu() ? multiply_pairs : multiply_pairs_plainly)(block);
  } else {
    (kernel.rows == kWide.rows ? multiply_wide : multiply_narrow)(block);
  }
}

}  // namespace lorikeet::ops::tiles
