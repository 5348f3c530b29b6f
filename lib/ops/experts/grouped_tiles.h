#pragma once

// Included by .cu files alone: what products by groups of rows share.
#include <cstdint>

#include "ops/cuda_tensor_core.h"
#include "ops/cuda_vector.h"

namespace lorikeet::ops::device {

inline constexpr int kChunk = 8;       // elements of 16 bytes
inline constexpr int kTileInner = 32;  // of the inner dimension, in shared memory at a time
inline constexpr int kInnerChunks = kTileInner / kChunk;
inline constexpr int kProductInner = 16;  // of one tensor core operation
inline constexpr int kWarpThreads = 32;

/// Rows of one expert: [begin, end).
struct RowRange {
  std::int64_t begin, end;
};

__device__ __forceinline__ RowRange rows_of_expert(const std::int64_t* ends, int expert) {
  return {expert == 0 ? 0 : ends[expert - 1], ends[expert]};
}

/// Tiles of `tile_rows` rows, each within an expert: as many are given to the i-th of `experts` as lie
/// between the tiles' borders next to its ends, counted from tile (first / tile_rows + i) on, `first` being
/// its first row, so that a tile's expert is found without sums over those before. One of an expert's tiles
/// may be empty.
inline std::int64_t row_tiles(std::int64_t rows, std::int64_t experts, int tile_rows) {
  return rows / tile_rows + experts;
}

/// The expert of a tile, from `begin` on: how many experts' tiles end before it; `end` where there is none. A
/// whole warp calls it.
__device__ __forceinline__ int expert_of_tile(std::int64_t tile, const std::int64_t* ends, int begin, int end,
                                              int tile_rows) {
  int before = 0;
  for (int e = begin + static_cast<int>(threadIdx.x) % kWarpThreads; e < end; e += kWarpThreads)
    before += ends[e] / tile_rows + e - begin + 1 <= tile ? 1 : 0;
#pragma unroll
  for (int lanes = kWarpThreads / 2; lanes > 0; lanes /= 2) before += __shfl_xor_sync(~0U, before, lanes);
  return begin + before;
}

}  // namespace lorikeet::ops::device
