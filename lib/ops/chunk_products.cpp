#include "ops/chunk_products.h"

#include <utility>

#include "ops/matmul/tiles.h"
#include "ops/vector.h"

namespace lorikeet::ops::cpu::chunked {
namespace {

// kStep numbers: one register of AVX-512, two of AVX2.
using V = float __attribute__((vector_size(kStep * sizeof(float)), aligned(sizeof(float)), may_alias));

LORIKEET_INLINE const V& vector_at(const float* at) { return *reinterpret_cast<const V*>(at); }
LORIKEET_INLINE V& vector_at(float* at) { return *reinterpret_cast<V*>(at); }

// One of a's strides is the constant 1, so that the compiler needs few registers for addresses.
template <int rows, int vectors, bool columns>
LORIKEET_INLINE void multiply_tile(std::int64_t k, Left a, Right b, float keep, Result c) {
  V sums[rows][vectors];
  for (int i = 0; i < rows; ++i)
    for (int j = 0; j < vectors; ++j) sums[i][j] = V{};
  const float *left = a.data, *right = b.data;
  for (std::int64_t inner = 0; inner < k; ++inner) {
    V column[vectors];
    for (int j = 0; j < vectors; ++j) column[j] = vector_at(right + j * kStep);
    for (int i = 0; i < rows; ++i) {
      const float number = columns ? left[i] : left[i * a.row_stride];
      for (int j = 0; j < vectors; ++j) sums[i][j] += number * column[j];
    }
    left += columns ? a.inner_stride : 1;
    right += b.stride;
  }
  for (int i = 0; i < rows; ++i) {
    for (int j = 0; j < vectors; ++j) {
      V& target = vector_at(c.data + i * c.stride + j * kStep);
      target = keep == 0.0F ? sums[i][j] : keep * target + sums[i][j];
    }
  }
}

// A panel of b's columns stays in the inner cache while all rows of a pass by.
template <int rows, int vectors, bool columns>
LORIKEET_INLINE void multiply_panel(std::int64_t m, std::int64_t k, Left a, Right b, float keep, Result c) {
  for (std::int64_t row = 0; row < m; row += rows) {
    multiply_tile<rows, vectors, columns>(k, a.at(row, 0), b, keep, {c.data + row * c.stride, c.stride});
  }
}

template <int rows, int vectors, bool columns>
LORIKEET_INLINE void multiply_all(std::int64_t m, std::int64_t n, std::int64_t k, Left a, Right b, float keep,
                                  Result c) {
  std::int64_t j = 0;
  for (; j + vectors * kStep <= n; j += vectors * kStep) {
    multiply_panel<rows, vectors, columns>(m, k, a, {b.data + j, b.stride}, keep, {c.data + j, c.stride});
  }
  for (; j < n; j += kStep) {
    multiply_panel<rows, 1, columns>(m, k, a, {b.data + j, b.stride}, keep, {c.data + j, c.stride});
  }
}

// For the 32 registers of AVX-512.
LORIKEET_VECTOR_CLONES void multiply_wide(std::int64_t m, std::int64_t n, std::int64_t k, Left a, Right b,
                                          float keep, Result c) {
  if (a.inner_stride == 1) {
    multiply_all<8, 2, false>(m, n, k, a, b, keep, c);
  } else {
    multiply_all<8, 2, true>(m, n, k, a, b, keep, c);
  }
}
// For the 16 registers of AVX2.
LORIKEET_VECTOR_CLONES void multiply_narrow(std::int64_t m, std::int64_t n, std::int64_t k, Left a, Right b,
                                            float keep, Result c) {
  if (a.inner_stride == 1) {
    multiply_all<4, 1, false>(m, n, k, a, b, keep, c);
  } else {
    multiply_all<4, 1, true>(m, n, k, a, b, keep, c);
  }
}

// The systems of the blocks on the diagonal. A column of x's block stays in registers; each of its rows is
// subtracted from all that depend on it as soon as it is known.
LORIKEET_VECTOR_CLONES void solve_block(std::int64_t n, Right a, Result x) {
  for (std::int64_t j = 0; j < n; j += kStep) {
    V rows[kStep];
#pragma GCC unroll 16
    for (int i = 0; i < kStep; ++i) rows[i] = vector_at(x.data + i * x.stride + j);
#pragma GCC unroll 16
    for (int known = 0; known < kStep; ++known) {
#pragma GCC unroll 16
      for (int i = known + 1; i < kStep; ++i) rows[i] += a.data[i * a.stride + known] * rows[known];
    }
#pragma GCC unroll 16
    for (int i = 0; i < kStep; ++i) vector_at(x.data + i * x.stride + j) = rows[i];
  }
}
LORIKEET_VECTOR_CLONES void solve_block_transposed(std::int64_t n, Right a, Result x) {
  for (std::int64_t j = 0; j < n; j += kStep) {
    V rows[kStep];
#pragma GCC unroll 16
    for (int i = 0; i < kStep; ++i) rows[i] = vector_at(x.data + i * x.stride + j);
#pragma GCC unroll 16
    for (int known = kStep - 1; known > 0; --known) {
#pragma GCC unroll 16
      for (int i = 0; i < known; ++i) rows[i] += a.data[known * a.stride + i] * rows[known];
    }
#pragma GCC unroll 16
    for (int i = 0; i < kStep; ++i) vector_at(x.data + i * x.stride + j) = rows[i];
  }
}

Right block_of(Right a, std::int64_t row, std::int64_t column) {
  return {a.data + row * a.stride + column, a.stride};
}
Result rows_from(Result c, std::int64_t row) { return {c.data + row * c.stride, c.stride}; }
Right rows_from(Right b, std::int64_t row) { return {b.data + row * b.stride, b.stride}; }
Right as_right(Result c) { return {c.data, c.stride}; }

// Exchanges, of each pair of rows that are `distance` apart, the halves of each 2 * distance numbers that
// lie off the diagonal.
template <int distance, int... lane>
LORIKEET_INLINE void exchange(V (&rows)[kStep], std::integer_sequence<int, lane...> /*lanes*/) {
#pragma GCC unroll 16
  for (int i = 0; i < kStep; ++i) {
    if ((i & distance) != 0) continue;
    const V a = rows[i], b = rows[i + distance];
    rows[i] = __builtin_shufflevector(a, b, ((lane & distance) != 0 ? kStep + lane - distance : lane)...);
    rows[i + distance] =
        __builtin_shufflevector(a, b, ((lane & distance) != 0 ? kStep + lane : lane + distance)...);
  }
}
template <int distance>
LORIKEET_INLINE void exchange(V (&rows)[kStep]) {
  exchange<distance>(rows, std::make_integer_sequence<int, kStep>());
}

}  // namespace

void multiply(std::int64_t m, std::int64_t n, std::int64_t k, Left a, Right b, float keep, Result c) {
  static const bool wide = tiles::kernel_of_cpu().rows == tiles::kWide.rows;
  (wide ? multiply_wide : multiply_narrow)(m, n, k, a, b, keep, c);
}

void multiply_to_lower(std::int64_t n, std::int64_t k, Left a, Right b, Result c) {
  for (std::int64_t row = 0; row < n; row += kStep) {
    multiply(kStep, row + kStep, k, a.at(row, 0), b, 0.0F, rows_from(c, row));
  }
}

void multiply_lower(std::int64_t m, std::int64_t n, Right a, Right b, float keep, Result c) {
  for (std::int64_t row = 0; row < m; row += kStep) {
    multiply(kStep, n, row + kStep, rows_of(a.data + row * a.stride, a.stride), b, keep, rows_from(c, row));
  }
}

void multiply_lower_transposed(std::int64_t m, std::int64_t n, Right a, Right b, float keep, Result c) {
  for (std::int64_t row = 0; row < m; row += kStep) {
    multiply(kStep, n, m - row, columns_of(block_of(a, row, row).data, a.stride), rows_from(b, row), keep,
             rows_from(c, row));
  }
}

void solve_lower(std::int64_t m, std::int64_t n, Right a, Result x) {
  for (std::int64_t row = 0; row < m; row += kStep) {
    const Result block = rows_from(x, row);
    if (row > 0) multiply(kStep, n, row, rows_of(block_of(a, row, 0).data, a.stride), as_right(x), 1, block);
    solve_block(n, block_of(a, row, row), block);
  }
}

void solve_lower_transposed(std::int64_t m, std::int64_t n, Right a, Result x) {
  for (std::int64_t row = m - kStep; row >= 0; row -= kStep) {
    const Result block = rows_from(x, row);
    const std::int64_t below = row + kStep;
    if (below < m) {
      multiply(kStep, n, m - below, columns_of(block_of(a, below, row).data, a.stride),
               as_right(rows_from(x, below)), 1, block);
    }
    solve_block_transposed(n, block_of(a, row, row), block);
  }
}

LORIKEET_VECTOR_CLONES void transpose(std::int64_t rows, std::int64_t columns, Right in, Result out) {
  for (std::int64_t row = 0; row < rows; row += kStep) {
    for (std::int64_t column = 0; column < columns; column += kStep) {
      V block[kStep];
#pragma GCC unroll 16
      for (int i = 0; i < kStep; ++i) block[i] = vector_at(in.data + (row + i) * in.stride + column);
      exchange<8>(block);
      exchange<4>(block);
      exchange<2>(block);
      exchange<1>(block);
#pragma GCC unroll 16
      for (int i = 0; i < kStep; ++i) vector_at(out.data + (column + i) * out.stride + row) = block[i];
    }
  }
}

}  // namespace lorikeet::ops::cpu::chunked
