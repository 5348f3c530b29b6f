#pragma once

// Included by .cu files alone: where the numbers of a state space's heads and chunks lie.
#include <cstdint>

#include "ops/cuda_tiles.h"
#include "ops/state_space/state_space_cuda.h"

namespace lorikeet::ops::space {

using namespace tiles;

static_assert(kSide == StateSpaceSizes::kChunk);

/// StateSpaceSizes, and where columns and rows lie.
struct Shape {
  explicit Shape(const StateSpaceSizes& sizes)
      : sequences(static_cast<int>(sizes.sequences)),
        heads(static_cast<int>(sizes.heads)),
        head_dim(static_cast<int>(sizes.head_dim)),
        groups(static_cast<int>(sizes.groups)),
        state_dim(static_cast<int>(sizes.state_dim)),
        x_width(static_cast<int>(sizes.heads * sizes.head_dim)),
        width(static_cast<int>(sizes.heads * sizes.head_dim + 2 * sizes.groups * sizes.state_dim)) {}

  int sequences, heads, head_dim, groups, state_dim;
  int x_width, width;  // of x's columns of a row, of a row

  __device__ __forceinline__ int parts() const { return (state_dim + kSide - 1) / kSide; }
  __device__ __forceinline__ int group(int head) const { return head / (heads / groups); }
  __device__ __forceinline__ int b(int group) const { return x_width + group * state_dim; }
  __device__ __forceinline__ int c(int group) const { return x_width + (groups + group) * state_dim; }
  __device__ __forceinline__ std::int64_t products(std::int64_t slot, int group) const {
    return (slot * groups + group) * (kSide * kSide);
  }
  __device__ __forceinline__ std::int64_t decays(std::int64_t slot, int head) const {
    return (slot * heads + head) * StateSpaceSizes::kDecays;
  }
  __device__ __forceinline__ std::int64_t state(std::int64_t index, int head) const {
    return (index * heads + head) * state_dim * head_dim;
  }
};

/// Numbers of a chunk's tokens and one head that its rows are multiplied by.
struct RowScales {
  float step[kSide];
  float decay[kSide], rest[kSide];  // G, and what its rounding left off
  float from_start[kSide];          // exp(G_i)
  float to_end[kSide];              // exp(G of the chunk - G_i)

  // exp(G_i - G_j), of i >= j.
  __device__ __forceinline__ float between(int i, int j) const {
    return expf((decay[i] - decay[j]) + (rest[i] - rest[j]));
  }
};
/// One token's, by a thread; all have to pass a barrier before they read them. Behind the chunk's rows steps
/// are 0, and G is the last one's.
__device__ __forceinline__ void load_scales(const float* decays, int row, RowScales& to) {
  const float decay = decays[kSide + row], rest = decays[2 * kSide + row];
  to.step[row] = decays[row];
  to.decay[row] = decay;
  to.rest[row] = rest;
  to.from_start[row] = expf(decay + rest);
  to.to_end[row] = expf((decays[2 * kSide - 1] - decay) + (decays[3 * kSide - 1] - rest));
}

/// What the thread owns of C_i.B_j becomes C_i.B_j exp(G_i - G_j) for i >= j, else 0.
__device__ __forceinline__ void apply_decays(const RowScales& scales, Patch<4>& products) {
#pragma unroll
  for (int r = 0; r < kRows; ++r) {
#pragma unroll
    for (int c = 0; c < 4; ++c) {
      const int i = first_row() + r, j = share() * 4 + c;
      products.values[r][c] *= i >= j ? scales.between(i, j) : 0;
    }
  }
}

}  // namespace lorikeet::ops::space
