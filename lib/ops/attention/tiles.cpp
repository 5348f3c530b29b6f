#include "ops/attention/tiles.h"

namespace lorikeet::ops::cpu {
namespace {

using vector::Bf16;

template <typename T, typename E>
LORIKEET_INLINE void load(const T* in, std::int64_t stride, std::int64_t rows, std::int64_t rows_padded,
                          std::int64_t width, E* __restrict__ out) {
  for (std::int64_t row = 0; row < rows; ++row) {
    const T* from = in + row * stride;
    for (std::int64_t i = 0; i < width; ++i) {
      if constexpr (std::is_same_v<T, E>) {
        out[row * width + i] = from[i];
      } else {
        out[row * width + i] = vector::load(from[i]);
      }
    }
  }
  std::fill(out + rows * width, out + rows_padded * width, E{});
}

template <typename E>
LORIKEET_INLINE void transpose(const E* __restrict__ in, std::int64_t rows, std::int64_t width,
                               E* __restrict__ out) {
  for (std::int64_t i = 0; i < width; ++i) {
    E* to = out + i * kTile;
    for (std::int64_t row = 0; row < rows; ++row) to[row] = in[row * width + i];
    for (std::int64_t row = rows; row < kTile; ++row) to[row] = E{};
  }
}

}  // namespace

LORIKEET_VECTOR_CLONES void load_rows(const float* in, std::int64_t stride, std::int64_t rows,
                                      std::int64_t rows_padded, std::int64_t width, float* out) {
  load(in, stride, rows, rows_padded, width, out);
}
LORIKEET_VECTOR_CLONES void load_rows(const Bf16* in, std::int64_t stride, std::int64_t rows,
                                      std::int64_t rows_padded, std::int64_t width, float* out) {
  load(in, stride, rows, rows_padded, width, out);
}
LORIKEET_VECTOR_CLONES void load_rows(const Bf16* in, std::int64_t stride, std::int64_t rows,
                                      std::int64_t rows_padded, std::int64_t width, Bf16* out) {
  load(in, stride, rows, rows_padded, width, out);
}

LORIKEET_VECTOR_CLONES void transpose_tile(const float* in, std::int64_t rows, std::int64_t width,
                                           float* out) {
  transpose(in, rows, width, out);
}
LORIKEET_VECTOR_CLONES void transpose_tile(const Bf16* in, std::int64_t rows, std::int64_t width, Bf16* out) {
  transpose(in, rows, width, out);
}

void transpose_right(const float* in, std::int64_t rows, std::int64_t width, float* out) {
  transpose_tile(in, rows, width, out);
}
LORIKEET_VECTOR_CLONES void transpose_right(const Bf16* __restrict__ in, std::int64_t rows,
                                            std::int64_t width, Bf16Pair* __restrict__ out) {
  for (std::int64_t i = 0; i < width; i += 2) {
    Bf16Pair* to = out + i / 2 * kTile;
    for (std::int64_t row = 0; row < rows; ++row) {
      to[row] = pair_of(in[row * width + i], in[row * width + i + 1]);
    }
    for (std::int64_t row = rows; row < kTile; ++row) to[row] = Bf16Pair{};
  }
}

LORIKEET_VECTOR_CLONES void pair_rows(const Bf16* __restrict__ in, std::int64_t rows, std::int64_t width,
                                      Bf16Pair* __restrict__ out) {
  for (std::int64_t row = 0; row < rows; row += 2) {
    const Bf16 *even = in + row * width, *odd = even + width;
    for (std::int64_t i = 0; i < width; ++i) out[row / 2 * width + i] = pair_of(even[i], odd[i]);
  }
}

}  // namespace lorikeet::ops::cpu
