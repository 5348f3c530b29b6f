#include "ops/matmul/tiles.h"

#include <bit>

#include "ops/vector.h"

namespace lorikeet::ops::tiles {
namespace {

using vector::Bf16;

constexpr int kGroup = 8;  // lanes and inner elements that are transposed at a time

template <typename T, int n>
struct VectorOf {
  using Type __attribute__((vector_size(n * sizeof(T)), aligned(sizeof(T)), may_alias)) = T;
};
template <typename T, int n>
using Vector = typename VectorOf<T, n>::Type;
using Floats = Vector<float, kGroup>;

LORIKEET_INLINE Floats load_group(const float* from) { return *reinterpret_cast<const Floats*>(from); }
LORIKEET_INLINE Floats load_group(const Bf16* from) {
  const auto bits = *reinterpret_cast<const Vector<std::uint16_t, kGroup>*>(from);
  return std::bit_cast<Floats>(__builtin_convertvector(bits, Vector<std::uint32_t, kGroup>) << 16);
}
LORIKEET_INLINE void store_group(const Floats& value, float* to) { *reinterpret_cast<Floats*>(to) = value; }

// Rows become columns. In three steps that exchange halves of pairs, each within what one instruction can do.
LORIKEET_INLINE void transpose(Floats (&r)[kGroup]) {
  Floats pairs[kGroup], quads[kGroup];
  for (int i = 0; i < kGroup; i += 2) {
    pairs[i] = __builtin_shufflevector(r[i], r[i + 1], 0, 8, 1, 9, 4, 12, 5, 13);
    pairs[i + 1] = __builtin_shufflevector(r[i], r[i + 1], 2, 10, 3, 11, 6, 14, 7, 15);
  }
  for (int i = 0; i < kGroup; i += 4) {
    for (int j = 0; j < 2; ++j) {
      quads[i + 2 * j] = __builtin_shufflevector(pairs[i + j], pairs[i + j + 2], 0, 1, 8, 9, 4, 5, 12, 13);
      quads[i + 2 * j + 1] =
          __builtin_shufflevector(pairs[i + j], pairs[i + j + 2], 2, 3, 10, 11, 6, 7, 14, 15);
    }
  }
  for (int i = 0; i < 4; ++i) {
    r[i] = __builtin_shufflevector(quads[i], quads[i + 4], 0, 1, 2, 3, 8, 9, 10, 11);
    r[i + 4] = __builtin_shufflevector(quads[i], quads[i + 4], 4, 5, 6, 7, 12, 13, 14, 15);
  }
}

// Lanes whose inner elements lie side by side: blocks of 8 x 8 are transposed. Groups overlap where the width
// isn't a multiple of 8: what a store writes behind its lanes is written again by the next.
template <int width, typename T>
LORIKEET_INLINE void pack_transposed(const T* from, std::int64_t stride, std::int64_t inner, float* out) {
  constexpr int kGroups = (width + kGroup - 1) / kGroup;
  std::int64_t k = 0;
  for (; k + kGroup <= inner; k += kGroup) {
    Floats block[kGroups][kGroup];
    for (int g = 0; g < kGroups; ++g) {
      for (int i = 0; i < kGroup; ++i) {
        const int lane = g * kGroup + i;
        block[g][i] = lane < width ? load_group(from + lane * stride + k) : Floats{};
      }
      transpose(block[g]);
    }
    for (int i = 0; i < kGroup; ++i)
      for (int g = 0; g < kGroups; ++g) store_group(block[g][i], out + (k + i) * width + g * kGroup);
  }
  for (; k < inner; ++k) {
    for (int lane = 0; lane < width; ++lane) out[k * width + lane] = vector::load(from[lane * stride + k]);
  }
}

// Lanes that lie side by side.
template <int width, typename T>
LORIKEET_INLINE void pack_rows(const T* from, std::int64_t stride, std::int64_t inner, float* out) {
  for (std::int64_t k = 0; k < inner; ++k)
    for (int lane = 0; lane < width; ++lane) out[k * width + lane] = vector::load(from[k * stride + lane]);
}

// Some lanes aren't there.
template <typename T>
LORIKEET_INLINE void pack_edge(const Operand& from, std::int64_t begin, std::int64_t end, std::int64_t first,
                               std::int64_t inner, int width, float* out) {
  const T* const data = static_cast<const T*>(from.data);
  for (std::int64_t k = 0; k < inner; ++k) {
    for (int i = 0; i < width; ++i) {
      const std::int64_t lane = begin + i;
      out[k * width + i] = lane >= 0 && lane < end
                               ? vector::load(data[lane * from.lane_stride + (first + k) * from.inner_stride])
                               : 0.0F;
    }
  }
}

template <int width, typename T>
LORIKEET_INLINE void pack_whole(const Operand& from, std::int64_t begin, std::int64_t first,
                                std::int64_t inner, float* out) {
  const T* const data =
      static_cast<const T*>(from.data) + begin * from.lane_stride + first * from.inner_stride;
  if (from.inner_stride == 1) {
    pack_transposed<width, T>(data, from.lane_stride, inner, out);
  } else {
    pack_rows<width, T>(data, from.inner_stride, inner, out);
  }
}

template <typename T>
LORIKEET_INLINE void pack_as(const Operand& from, std::int64_t begin, std::int64_t end, std::int64_t first,
                             std::int64_t inner, int width, float* out) {
  if (begin < 0 || begin + width > end) return pack_edge<T>(from, begin, end, first, inner, width, out);
  switch (width) {
    case kNarrow.rows: return pack_whole<kNarrow.rows, T>(from, begin, first, inner, out);
    case kNarrow.columns: return pack_whole<kNarrow.columns, T>(from, begin, first, inner, out);
    case kWide.rows: return pack_whole<kWide.rows, T>(from, begin, first, inner, out);
    default: return pack_whole<kWide.columns, T>(from, begin, first, inner, out);
  }
}

// One tile: rows x (vectors of `n` floats) sums stay in registers while `inner` products are added. They
// begin at zero, also where what is there is added: sums of sums round less than long ones.
template <int rows, int vectors, int n>
LORIKEET_INLINE void multiply_tile(const float* left, const float* right, std::int64_t inner, float* sums,
                                   std::int64_t stride, bool add) {
  using V = Vector<float, n>;
  V tile[rows][vectors];
  for (int i = 0; i < rows; ++i)
    for (int j = 0; j < vectors; ++j) tile[i][j] = V{};
  for (std::int64_t k = 0; k < inner; ++k) {
    V column[vectors];
    for (int j = 0; j < vectors; ++j) column[j] = *reinterpret_cast<const V*>(right + j * n);
    for (int i = 0; i < rows; ++i)
      for (int j = 0; j < vectors; ++j) tile[i][j] += left[i] * column[j];
    left += rows;
    right += vectors * n;
  }
  for (int i = 0; i < rows; ++i) {
    for (int j = 0; j < vectors; ++j) {
      V& sum = *reinterpret_cast<V*>(sums + i * stride + j * n);
      sum = add ? sum + tile[i][j] : tile[i][j];
    }
  }
}

// A sliver of the right operand stays in the innermost cache while all tiles of the left one pass by.
template <int rows, int columns>
LORIKEET_INLINE void multiply_all(const TileProduct& p) {
  constexpr int kVectors = 2;
  for (std::int64_t s = 0; s < p.slivers; ++s) {
    for (std::int64_t t = 0; t < p.left_tiles; ++t) {
      multiply_tile<rows, kVectors, columns / kVectors>(
          p.left + t * rows * p.inner, p.right + s * p.right_stride, p.inner,
          p.sums + t * rows * p.stride + s * columns, p.stride, p.add);
    }
  }
}

LORIKEET_VECTOR_CLONES void multiply_narrow(const TileProduct& product) {
  multiply_all<kNarrow.rows, kNarrow.columns>(product);
}
LORIKEET_VECTOR_CLONES void multiply_wide(const TileProduct& product) {
  multiply_all<kWide.rows, kWide.columns>(product);
}

LORIKEET_VECTOR_CLONES void pack_fp32(const Operand& from, std::int64_t begin, std::int64_t end,
                                      std::int64_t first, std::int64_t inner, int width, float* out) {
  pack_as<float>(from, begin, end, first, inner, width, out);
}
LORIKEET_VECTOR_CLONES void pack_bf16(const Operand& from, std::int64_t begin, std::int64_t end,
                                      std::int64_t first, std::int64_t inner, int width, float* out) {
  pack_as<Bf16>(from, begin, end, first, inner, width, out);
}

template <typename T>
LORIKEET_INLINE void store_as(const float* sums, const float* bias, std::int64_t count, T* out) {
  if (bias != nullptr) {
    for (std::int64_t i = 0; i < count; ++i) vector::store(sums[i] + bias[i], out[i]);
  } else {
    for (std::int64_t i = 0; i < count; ++i) vector::store(sums[i], out[i]);
  }
}

}  // namespace

TileShape tile_of_cpu() {
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

void pack(const Operand& from, std::int64_t begin, std::int64_t end, std::int64_t first, std::int64_t inner,
          int width, float* out) {
  (from.is_bf16 ? pack_bf16 : pack_fp32)(from, begin, end, first, inner, width, out);
}

void multiply(const TileProduct& product, TileShape shape) {
  (shape.rows == kWide.rows ? multiply_wide : multiply_narrow)(product);
}

LORIKEET_VECTOR_CLONES void store_bf16(const float* sums, const float* bias, std::int64_t count, void* out) {
  store_as(sums, bias, count, static_cast<Bf16*>(out));
}

LORIKEET_VECTOR_CLONES void store_fp32(const float* sums, const float* bias, std::int64_t count, float* out) {
  store_as(sums, bias, count, out);
}

LORIKEET_VECTOR_CLONES void add_fp32(const float* sums, float scale, std::int64_t count, float* out) {
  for (std::int64_t i = 0; i < count; ++i) out[i] += scale * sums[i];
}

}  // namespace lorikeet::ops::tiles
