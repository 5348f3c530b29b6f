#pragma once

#include <algorithm>
#include <cstdint>

#include "ops/lora/low_rank_gradients_cuda.h"

namespace lorikeet::ops {

/// How low_rank_gradients_cuda.cu divides dy among blocks.
struct LowRankSplit {
  static constexpr int kMostRank = 16;
  static constexpr int kTile = 64;  ///< rows and columns that are multiplied at a time
  /// Rows of a block, whose part of u fits beside three tiles in shared memory. The more, the fewer partial
  /// sums of grad_b there are.
  static constexpr int kRows = 512;
  /// Blocks on a multiprocessor: their tiles on the way hide memory's delay.
  static constexpr int kBlocksAtOnce = 2;
  /// Blocks that a large GPU, of 132 multiprocessors, runs at once: with more, some would run alone at the
  /// end.
  static constexpr std::int64_t kBlocks = 132 * kBlocksAtOnce;

  explicit LowRankSplit(const LowRankGradients& in) : ranges((in.tokens + kRows - 1) / kRows) {
    std::int64_t all = 0;
    for (int i = 0; i < in.projections; ++i) all += tiles_of(in.width[i]);
    tiles = std::max<std::int64_t>(1, (all * ranges + kBlocks - 1) / kBlocks);
  }

  static std::int64_t tiles_of(std::int64_t width) { return (width + kTile - 1) / kTile; }
  std::int64_t slices(std::int64_t width) const { return (tiles_of(width) + tiles - 1) / tiles; }

  std::int64_t ranges;  ///< of rows
  std::int64_t tiles;   ///< of columns, in a slice
};

/// Whether the kernels take them: a rank of 8 or 16, columns by multiples of 8. (With a rank of 32 they were
/// no faster than products of their own: benchmarks/results/card.md.)
inline bool low_rank_gradients_fit(const LowRankGradients& in) {
  constexpr std::int64_t kChunk = 8, kMostColumns = std::int64_t{1} << 30, kMostRanges = 65535;
  bool fits = in.rank > 0 && in.rank % kChunk == 0 && in.rank <= LowRankSplit::kMostRank &&
              in.dy_row % kChunk == 0 && in.dy_row < kMostColumns &&
              in.tokens <= kMostRanges * LowRankSplit::kRows;
  for (int i = 0; i < in.projections; ++i)
    fits = fits && in.begin[i] % kChunk == 0 && in.width[i] % kChunk == 0 && in.width[i] > 0;
  return fits;
}

/// fp32 numbers of device memory that the kernels leave partial sums in.
inline std::int64_t low_rank_gradients_scratch(const LowRankGradients& in) {
  const LowRankSplit split(in);
  std::int64_t slices = 0;
  for (int i = 0; i < in.projections; ++i) slices += split.slices(in.width[i]);
  return (slices * in.tokens + split.ranges * in.columns()) * in.rank;
}

}  // namespace lorikeet::ops
