#pragma once

#include <cstdint>

#include "ops/gated_delta/chunk.h"

// The parts of the gated delta rule's backward that aren't products, for one chunk; the formulas and names
// are those of cpu_backward.cpp. Rows and heads are padded as chunk.h says.
namespace lorikeet::ops::cpu::delta {

/// The gradients of a chunk's gates, of one value head. In fp64: most terms of dG cancel in dg.
struct GateSums {
  double sum[kChunk];  ///< dG of each token
  double whole;        ///< what dG_last gets besides
  float b[kChunk];     ///< db
};

/// Tiles [kChunk, kChunk], of which the blocks on and below the diagonal are read.
struct Tiles {
  const float *dout, *r;           ///< dout delta^T and r delta^T
  const float *scores, *overlaps;  ///< q k^T and k k^T
  const float* decays;             ///< D, 0 above the diagonal
};

/// d_scores += M and d_overlaps += N (each with zeros above the diagonal); sums.sum += their parts of dG;
/// sums.b = db.
void add_tile_gradients(const Tiles& tiles, const Gates& gates, std::int64_t count, float* d_scores,
                        float* d_overlaps, GateSums& sums);

/// upstream [2 * rows, value] = e^G dout, then h = -beta e^G r.
void scale_upstream(const float* dout, const float* r, const Gates& gates, std::int64_t count,
                    std::int64_t value, float* upstream);

/// From rows q and k, from_begin = upstream S^T (both [2 * rows, key]) and to_end = delta dS'^T [rows, key]:
/// d_rows += what dq and dk get through the states, and sums the dG of those.
void add_state_gradients(const float* rows, const float* from_begin, const float* to_end, const Gates& gates,
                         std::int64_t count, std::int64_t key, float* d_rows, GateSums& sums);

/// db to out[i * 2 * value_heads] and da `value_heads` behind it, for each token i.
void store_gate_gradients(const Gates& gates, const GateSums& sums, std::int64_t count, float* out,
                          std::int64_t value_heads);
void store_gate_gradients(const Gates& gates, const GateSums& sums, std::int64_t count, vector::Bf16* out,
                          std::int64_t value_heads);

/// The gradient of heads x, from unit = scale * inverse[row] * x and its gradient d_unit, both [count, padded
/// width], to out [count, width], rows `stride` apart.
void store_unit_gradients(const float* unit, const float* d_unit, const float* inverse, float scale,
                          std::int64_t count, std::int64_t width, float* out, std::int64_t stride);
void store_unit_gradients(const float* unit, const float* d_unit, const float* inverse, float scale,
                          std::int64_t count, std::int64_t width, vector::Bf16* out, std::int64_t stride);

}  // namespace lorikeet::ops::cpu::delta
