#pragma once

#include <cstdint>

#include "ops/state_space/chunk.h"

// The parts of the state space's backward that aren't products, for one chunk; the formulas and names are
// those of cpu_backward.cpp. Rows and heads are padded as chunk.h says.
namespace lorikeet::ops::cpu::state {

/// The gradients of a chunk's decays and steps, of one head. In fp64: most terms of dG cancel in dg.
struct StepSums {
  double sum[kChunk];  ///< dG of each token
  double whole;        ///< what dG_last gets besides
  float dots[kChunk];  ///< x_i . du_i
};

/// d_scores += P and sums.sum += its parts of dG. products: dout u^T; scores: C B^T; decays: tiles [kChunk,
/// kChunk], of which the blocks on and below the diagonal are read; those of decays above it are 0.
void add_tile_gradients(const float* products, const float* scores, const float* decays, std::int64_t count,
                        float* d_scores, StepSums& sums);

/// d_rows [rows, width] += terms; sums.sum[row] += rows . terms. Of rows in front of a chunk's state.
void add_state_terms(const float* rows, const float* terms, std::int64_t count, std::int64_t width,
                     float* d_rows, StepSums& sums);

/// du [rows, head], what u gets through the state behind the chunk, is scaled by e^(G_last - G), and its
/// products with u = step * x go to the sums.
void scale_tail(const float* x, const Steps& steps, std::int64_t count, std::int64_t width, float* du,
                StepSums& sums);

/// From du, the gradient of u: dots, and dx = step * du + passed * dout in its place.
void finish_rows(const float* x, const float* dout, const Steps& steps, float passed, std::int64_t count,
                 std::int64_t width, float* du, StepSums& sums);

/// The gradient of dt to out, rows `stride` apart.
void store_step_gradients(const Steps& steps, const Head& head, const StepSums& sums, std::int64_t count,
                          float* out, std::int64_t stride);
void store_step_gradients(const Steps& steps, const Head& head, const StepSums& sums, std::int64_t count,
                          vector::Bf16* out, std::int64_t stride);

/// out [rows, width] = the sum of `count` matrices of `rows` dense rows, `part` elements apart; rows of out
/// `stride` apart.
void sum_parts(const float* parts, std::int64_t count, std::int64_t part, std::int64_t rows,
               std::int64_t width, float* out, std::int64_t stride);
void sum_parts(const float* parts, std::int64_t count, std::int64_t part, std::int64_t rows,
               std::int64_t width, vector::Bf16* out, std::int64_t stride);

}  // namespace lorikeet::ops::cpu::state
