#include "ops/gated_delta/backward_terms.h"

namespace lorikeet::ops::cpu::delta {
namespace {

using vector::Bf16;
using vector::kLanes;

LORIKEET_INLINE float sum_of(const float (&lanes)[kLanes]) {
  float sum = 0;
  for (const float lane : lanes) sum += lane;
  return sum;
}

template <typename T>
LORIKEET_INLINE void store_gates(const Gates& gates, const GateSums& sums, std::int64_t count, T* out,
                                 std::int64_t value_heads) {
  double dg = sums.whole;
  for (std::int64_t i = count - 1; i >= 0; --i) {
    dg += sums.sum[i];
    T* to = out + i * 2 * value_heads;
    vector::store(sums.b[i], to[0]);
    vector::store(static_cast<float>(dg) * gates.slope[i], to[value_heads]);
  }
}

template <typename T>
LORIKEET_INLINE void store_units(const float* unit, const float* d_unit, const float* inverse, float scale,
                                 std::int64_t count, std::int64_t width, T* out, std::int64_t stride) {
  const std::int64_t all = padded(width);
  for (std::int64_t row = 0; row < count; ++row) {
    const float *x = unit + row * all, *d = d_unit + row * all;
    float lanes[kLanes] = {};
    for (std::int64_t i = 0; i < all; i += kLanes) {
      for (std::int64_t lane = 0; lane < kLanes; ++lane) lanes[lane] += x[i + lane] * d[i + lane];
    }
    const float along = sum_of(lanes) * inverse[row] / scale, factor = scale * inverse[row];
    T* to = out + row * stride;
    for (std::int64_t i = 0; i < width; ++i) vector::store(factor * d[i] - along * x[i], to[i]);
  }
}

}  // namespace

// What a pair of tokens i > j adds to dG_i and takes from dG_j must cancel in dg_t for t <= j, however large
// it is beside the rest: rows and columns are summed in fp64.
LORIKEET_VECTOR_CLONES void add_tile_gradients(const Tiles& tiles, const Gates& gates, std::int64_t count,
                                               float* __restrict__ d_scores, float* __restrict__ d_overlaps,
                                               GateSums& sums) {
  double columns[kChunk] = {};
  const std::int64_t rows = padded(count);
  for (std::int32_t i = 0; i < rows; ++i) {
    const std::int64_t row = i * kChunk;
    const float beta = gates.beta[i];
    double lanes[kLanes] = {};
    for (std::int32_t begin = 0; begin <= i; begin += kLanes) {
      for (std::int32_t lane = 0; lane < kLanes; ++lane) {
        const std::int32_t j = begin + lane;
        const std::int64_t at = row + j;
        const float decay = tiles.decays[at];
        const float m = tiles.dout[at] * decay;
        const float n = j < i ? -beta * tiles.r[at] * decay : 0.0F;
        const double x = j < i ? m * tiles.scores[at] + n * tiles.overlaps[at] : 0.0F;
        d_scores[at] += m;
        d_overlaps[at] += n;
        columns[j] += x;
        lanes[lane] += x;
      }
    }
    for (const double lane : lanes) sums.sum[i] += lane;
    sums.b[i] = (1.0F - beta) * tiles.r[row + i];
  }
  for (std::int64_t j = 0; j < rows; ++j) sums.sum[j] -= columns[j];
}

LORIKEET_VECTOR_CLONES void scale_upstream(const float* __restrict__ dout, const float* __restrict__ r,
                                           const Gates& gates, std::int64_t count, std::int64_t value,
                                           float* __restrict__ upstream) {
  const std::int64_t rows = padded(count);
  float* h = upstream + rows * value;
  for (std::int64_t row = 0; row < rows; ++row) {
    const float decay = gates.from_begin[row], factor = -gates.beta[row] * decay;
    for (std::int64_t i = row * value; i < (row + 1) * value; ++i) {
      upstream[i] = decay * dout[i];
      h[i] = factor * r[i];
    }
  }
}

LORIKEET_VECTOR_CLONES void add_state_gradients(const float* __restrict__ rows,
                                                const float* __restrict__ from_begin,
                                                const float* __restrict__ to_end, const Gates& gates,
                                                std::int64_t count, std::int64_t key,
                                                float* __restrict__ d_rows, GateSums& sums) {
  const std::int64_t keys_at = padded(count) * key;
  for (std::int64_t row = 0; row < count; ++row) {
    const float decay = gates.to_end[row];
    float begin_dots[kLanes] = {}, end_dots[kLanes] = {};
    for (std::int64_t i = row * key; i < (row + 1) * key; i += kLanes) {
      for (std::int64_t lane = 0; lane < kLanes; ++lane) {
        const std::int64_t q = i + lane, k = keys_at + q;
        const float end = decay * to_end[q];
        d_rows[q] += from_begin[q];
        d_rows[k] += from_begin[k] + end;
        begin_dots[lane] += rows[q] * from_begin[q] + rows[k] * from_begin[k];
        end_dots[lane] += rows[k] * end;
      }
    }
    const double z = sum_of(end_dots);
    sums.sum[row] += sum_of(begin_dots) - z;
    sums.whole += z;
  }
}

LORIKEET_VECTOR_CLONES void store_gate_gradients(const Gates& gates, const GateSums& sums, std::int64_t count,
                                                 float* out, std::int64_t value_heads) {
  store_gates(gates, sums, count, out, value_heads);
}
LORIKEET_VECTOR_CLONES void store_gate_gradients(const Gates& gates, const GateSums& sums, std::int64_t count,
                                                 Bf16* out, std::int64_t value_heads) {
  store_gates(gates, sums, count, out, value_heads);
}

LORIKEET_VECTOR_CLONES void store_unit_gradients(const float* unit, const float* d_unit, const float* inverse,
                                                 float scale, std::int64_t count, std::int64_t width,
                                                 float* out, std::int64_t stride) {
  store_units(unit, d_unit, inverse, scale, count, width, out, stride);
}
LORIKEET_VECTOR_CLONES void store_unit_gradients(const float* unit, const float* d_unit, const float* inverse,
                                                 float scale, std::int64_t count, std::int64_t width,
                                                 Bf16* out, std::int64_t stride) {
  store_units(unit, d_unit, inverse, scale, count, width, out, stride);
}

}  // namespace lorikeet::ops::cpu::delta
