#include "ops/chunk_rows.h"

#include <algorithm>

namespace lorikeet::ops::cpu::chunked {
namespace {

using vector::Bf16;
using vector::kLanes;

template <typename T>
LORIKEET_INLINE void load_padded(const T* in, std::int64_t stride, std::int64_t rows, std::int64_t width,
                                 float* __restrict__ out) {
  const std::int64_t all = padded(width);
  for (std::int64_t row = 0; row < rows; ++row) {
    for (std::int64_t i = 0; i < width; ++i) out[row * all + i] = vector::load(in[row * stride + i]);
    for (std::int64_t i = width; i < all; ++i) out[row * all + i] = 0.0F;
  }
  std::fill(out + rows * all, out + padded(rows) * all, 0.0F);
}

template <typename T>
LORIKEET_INLINE void store_scaled(const float* __restrict__ in, const float* scale, std::int64_t rows,
                                  std::int64_t width, T* __restrict__ out, std::int64_t stride) {
  for (std::int64_t row = 0; row < rows; ++row) {
    const float factor = scale != nullptr ? scale[row] : 1.0F;
    const float* from = in + row * padded(width);
    for (std::int64_t i = 0; i < width; ++i) vector::store(factor * from[i], out[row * stride + i]);
  }
}

}  // namespace

std::vector<std::int64_t> lengths_of(const Sequences& sequences) {
  std::vector<std::int64_t> lengths;
  for (std::size_t s = 0; s + 1 < sequences.cu_seqlens.size(); ++s) {
    lengths.push_back(sequences.cu_seqlens[s + 1] - sequences.cu_seqlens[s]);
  }
  return lengths;
}

LORIKEET_VECTOR_CLONES void sum_decays(const float* g, std::int64_t rows, Decays& out) {
  const std::int64_t all = padded(rows);
  double sum = 0;
  for (std::int64_t i = 0; i < all; ++i) out.sum[i] = sum += g[i];
  for (std::int64_t i = 0; i < all; ++i) {
    out.from_begin[i] = vector::exp(static_cast<float>(out.sum[i]));
    out.to_end[i] = vector::exp(static_cast<float>(sum - out.sum[i]));
  }
  out.whole = vector::exp(static_cast<float>(sum));
}

LORIKEET_VECTOR_CLONES void load_rows(const float* in, std::int64_t stride, std::int64_t rows,
                                      std::int64_t width, float* out) {
  load_padded(in, stride, rows, width, out);
}
LORIKEET_VECTOR_CLONES void load_rows(const Bf16* in, std::int64_t stride, std::int64_t rows,
                                      std::int64_t width, float* out) {
  load_padded(in, stride, rows, width, out);
}

LORIKEET_VECTOR_CLONES void store_rows(const float* in, const float* scale, std::int64_t rows,
                                       std::int64_t width, float* out, std::int64_t stride) {
  store_scaled(in, scale, rows, width, out, stride);
}
LORIKEET_VECTOR_CLONES void store_rows(const float* in, const float* scale, std::int64_t rows,
                                       std::int64_t width, Bf16* out, std::int64_t stride) {
  store_scaled(in, scale, rows, width, out, stride);
}

LORIKEET_VECTOR_CLONES void scale_rows(const float* scale, std::int64_t rows, std::int64_t width, float* x) {
  const std::int64_t all = padded(width);
  for (std::int64_t row = 0; row < padded(rows); ++row) {
    for (std::int64_t i = 0; i < all; ++i) x[row * all + i] *= scale[row];
  }
}

LORIKEET_VECTOR_CLONES void decay_tile(const Decays& decays, std::int64_t rows, float* __restrict__ tile) {
  for (std::int32_t i = 0; i < padded(rows); ++i) {
    const double sum = decays.sum[i];
    for (std::int32_t j = 0; j < padded(i + 1); ++j) {
      const auto exponent = static_cast<float>(sum - decays.sum[j]);
      tile[i * kChunk + j] = j <= i ? vector::exp(exponent) : 0.0F;
    }
  }
}

LORIKEET_VECTOR_CLONES void times_decays(const float* __restrict__ a, const float* __restrict__ decays,
                                         std::int64_t rows, float* __restrict__ out) {
  for (std::int64_t i = 0; i < padded(rows); ++i) {
    for (std::int64_t j = 0; j < padded(i + 1); ++j)
      out[i * kChunk + j] = a[i * kChunk + j] * decays[i * kChunk + j];
  }
}

LORIKEET_VECTOR_CLONES double inner_product(const float* a, const float* b, std::int64_t n) {
  constexpr std::int64_t kSums = 4 * kLanes;
  float lanes[kSums] = {};
  for (std::int64_t i = 0; i < n; i += kSums) {
    for (std::int64_t lane = 0; lane < kSums; ++lane) lanes[lane] += a[i + lane] * b[i + lane];
  }
  double sum = 0;
  for (const float lane : lanes) sum += lane;
  return sum;
}

}  // namespace lorikeet::ops::cpu::chunked
