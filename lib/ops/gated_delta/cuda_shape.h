#pragma once

// Included by .cu files alone: where the numbers of the gated delta rule's heads and chunks lie.
#include <cstdint>

#include "ops/cuda_tiles.h"
#include "ops/gated_delta/gated_delta_cuda.h"

namespace lorikeet::ops::delta {

using namespace tiles;

static_assert(kSide == DeltaSizes::kChunk);
inline constexpr int kParts = DeltaSizes::kMostKeyDim / kSide;  // of a key's columns

/// DeltaSizes, and where columns and rows lie.
struct Shape {
  explicit Shape(const DeltaSizes& sizes)
      : sequences(static_cast<int>(sizes.sequences)),
        key_heads(static_cast<int>(sizes.key_heads)),
        value_heads(static_cast<int>(sizes.value_heads)),
        key_dim(static_cast<int>(sizes.key_dim)),
        value_dim(static_cast<int>(sizes.value_dim)),
        width(static_cast<int>(2 * sizes.key_heads * sizes.key_dim + sizes.value_heads * sizes.value_dim)),
        values_width(static_cast<int>(sizes.value_heads * sizes.value_dim)) {}

  int sequences, key_heads, value_heads, key_dim, value_dim;
  int width, values_width;  // of a row of qkv, of its values

  __device__ __forceinline__ int parts() const { return (key_dim + kSide - 1) / kSide; }
  __device__ __forceinline__ int keys_width() const { return 2 * key_heads * key_dim; }
  __device__ __forceinline__ int key_head(int head) const { return head / (value_heads / key_heads); }
  __device__ __forceinline__ std::int64_t q(int key_head) const {
    return static_cast<std::int64_t>(key_head) * key_dim;
  }
  __device__ __forceinline__ std::int64_t k(int key_head) const {
    return static_cast<std::int64_t>(key_heads + key_head) * key_dim;
  }
  __device__ __forceinline__ std::int64_t v(int head) const {
    return static_cast<std::int64_t>(2 * key_heads) * key_dim + static_cast<std::int64_t>(head) * value_dim;
  }
  __device__ __forceinline__ std::int64_t matrix(std::int64_t slot, int head) const {
    return (slot * value_heads + head) * (kSide * kSide);
  }
  __device__ __forceinline__ std::int64_t decays(std::int64_t slot, int head) const {
    return (slot * value_heads + head) * DeltaSizes::kDecays;
  }
  __device__ __forceinline__ std::int64_t state(std::int64_t index, int head) const {
    return (index * value_heads + head) * key_dim * value_dim;
  }
};

inline int slices_of(const Shape& shape) { return (shape.value_dim + kSliceColumns - 1) / kSliceColumns; }

/// Numbers of a chunk's tokens that its rows are multiplied by.
struct RowScales {
  float q[kSide], k[kSide];  // norms
  float beta[kSide];
  float decay[kSide];       // G, but for
  float decay_rest[kSide];  // what fp32 rounds away of it
  float from_start[kSide];  // exp(G_i)
  float to_end[kSide];      // exp(G of the chunk - G_i)

  // exp(G_i - G_j), for i >= j.
  __device__ __forceinline__ float between(int i, int j) const {
    return expf((decay[i] - decay[j]) + (decay_rest[i] - decay_rest[j]));
  }
};
/// By the first threads of a block, between barriers. Behind the chunk's rows: no norm, beta 0, G of the
/// last.
__device__ __forceinline__ void load_scales(const Shape& shape, const float* norms, const float* decays,
                                            const Chunk& chunk, int key_head, RowScales& to) {
  const int row = thread();
  if (row >= kSide) return;
  const float* const of_row = norms + (chunk.begin + row) * 2 * shape.key_heads + key_head;
  const bool is_there = row < chunk.rows;
  to.q[row] = is_there ? of_row[0] : 0;
  to.k[row] = is_there ? of_row[shape.key_heads] : 0;
  const float decay = decays[kSide + row], rest = decays[2 * kSide + row];
  to.beta[row] = decays[row];
  to.decay[row] = decay;
  to.decay_rest[row] = rest;
  to.from_start[row] = expf(decay);
  to.to_end[row] = expf((decays[2 * kSide - 1] - decay) + (decays[3 * kSide - 1] - rest));
}

}  // namespace lorikeet::ops::delta
