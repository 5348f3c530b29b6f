#pragma once

// Included by .cu files alone: low-rank terms added to a tile of a matrix, 8 rows and 64 columns, that a warp
// reads anyway: as four products [16, 8] of columns by rows. Row m of product j is column 2j + m / 8 of the
// eight neighbours, 16 bytes, that the lanes of group m % 8 have of two rows each, so that a warp reads and
// writes whole lines of 128 bytes (with half lines the activation's backward kernel reached 50 to 60% of a
// copy's bandwidth on an H200 instead of 80%).
#include "ops/cuda_low_rank.h"

namespace lorikeet::ops::device {

inline constexpr int kTileRows = 8, kLaneRows = kTileRows / kQuarters;
inline constexpr int kLaneColumns = 8;  // 16 bytes
inline constexpr int kTileGroups = kWarp / kQuarters, kTileColumns = kTileGroups * kLaneColumns;
inline constexpr int kTileProducts = kLaneColumns / 2;
// A block's tiles lie side by side.
inline constexpr int kTileThreads = 128, kTileWarps = kTileThreads / kWarp;

/// A grid of blocks that cover `tiles` beside each other along x, and along y take every gridDim.y-th 8 rows:
/// enough to fill a card several times, and few, since each reads its right operands before its first rows.
inline dim3 grid_of_tiles(std::int64_t rows, std::int64_t tiles) {
  constexpr std::int64_t kBlocks = 2048;
  const unsigned x = blocks_of(tiles, kTileWarps);
  return {x, blocks_of(rows, kTileRows, (kBlocks + x - 1) / x)};
}

inline std::int64_t tiles_of(std::int64_t columns) { return (columns + kTileColumns - 1) / kTileColumns; }

template <typename T>
const T* typed(const void* pointer) {
  return static_cast<const T*>(pointer);
}

/// A term's operands, whose rows are the tile's rows and columns.
template <typename T>
struct Term {
  const T* left;
  const T* right;
  TermShape shape;
};

/// ranks_of_row where the compiler doesn't know the rank: without a branch.
template <typename T>
__device__ __forceinline__ Ranks ranks_of_any_row(const T* row, int rank, int quarter) {
  const int each = rank / kQuarters;
  const T* const from = row + quarter * each;
  return {{load_pack<2>(from).words[0], each == 2 ? 0 : load_pack<2>(from + 2).words[0]}};
}

/// The same of a matrix's transpose.
template <typename T>
__device__ __forceinline__ Ranks ranks_of_column(const T* column, std::int64_t width, int rank, int quarter) {
  const int each = rank / kQuarters;
  const auto* const from = reinterpret_cast<const unsigned short*>(column) + quarter * each * width;
  const auto two = [&](int i) {
    return from[i * width] | static_cast<unsigned>(from[(i + 1) * width]) << 16U;
  };
  return {{two(0), each == 2 ? 0 : two(2)}};
}

/// Which of the grid's tiles beside each other is this warp's.
__device__ __forceinline__ std::int64_t tile_number() {
  return std::int64_t{blockIdx.x} * kTileWarps + threadIdx.x / kWarp;
}

/// Where a lane is in its warp's tile.
struct TileLane {
  int group = static_cast<int>(threadIdx.x) % kWarp / kQuarters;
  int quarter = static_cast<int>(threadIdx.x) % kQuarters;
  int row = quarter * kLaneRows;      ///< the first of its two
  int column = group * kLaneColumns;  ///< the first of its eight
};

/// The right operand's part of a lane, its columns', for all rows. It stays in shared memory, of which a lane
/// uses its own place alone: registers would allow fewer warps.
struct RightOperand {
  uint4 (*products)[kTileThreads];  ///< kTileProducts

  /// Zeros unless `is_there`, and where there is no term. `column` is the lane's first one.
  template <bool of_columns, typename T>
  __device__ __forceinline__ void load(const Term<T>& term, std::int64_t column, std::int64_t width,
                                       int quarter, bool is_there) const {
#pragma unroll
    for (int j = 0; j < kTileProducts; ++j) {
      Ranks two[2] = {};
#pragma unroll
      for (int c = 0; c < 2; ++c) {
        if (term.left == nullptr || !is_there) continue;
        const std::int64_t at = column + 2 * j + c;
        if constexpr (of_columns) {
          two[c] = ranks_of_column(term.right + at, width, term.shape.rank, quarter);
        } else {
          two[c] = ranks_of_any_row(term.right + at * term.shape.rank, term.shape.rank, quarter);
        }
      }
      products[j][threadIdx.x] =
          make_uint4(two[0].words[0], two[1].words[0], two[0].words[1], two[1].words[1]);
    }
  }
  __device__ __forceinline__ Left get(int j) const {
    const uint4 words = products[j][threadIdx.x];
    return {{words.x, words.y, words.z, words.w}};
  }
};

/// The left operand's part of a lane: of row `first_row` + its group.
template <typename T>
__device__ __forceinline__ Right load_left(const Term<T>& term, std::int64_t first_row, std::int64_t rows,
                                           const TileLane& lane) {
  Ranks left = {};
  if (term.left != nullptr && first_row + lane.group < rows)
    left = ranks_of_any_row(term.left + (first_row + lane.group) * term.shape.left_row, term.shape.rank,
                            lane.quarter);
  return {{left.words[0], left.words[1]}};
}

/// Adds a term to the two numbers of each of a lane's rows that are of one product: nothing where there is
/// none, without a branch, so that a lane's numbers don't wait for each other.
template <typename T>
__device__ __forceinline__ void add_product(const Term<T>& term, const Right& left, const Left& right,
                                            float (&to)[kLaneRows][2]) {
  Sum sum = {};
  multiply_add<T>(sum, right, left);
#pragma unroll
  for (int i = 0; i < 4; ++i) to[i % 2][i / 2] += term.shape.scale * sum.values[i];
}

/// A lane's numbers of its two rows, as they lie in memory; zeros in rows and columns that aren't there.
template <typename T>
struct TileNumbers {
  Pack<T, kLaneColumns> rows[kLaneRows];

  __device__ __forceinline__ void load(int i, const T* from, bool is_there) {
    rows[i] = is_there ? load_pack<kLaneColumns>(from) : Pack<T, kLaneColumns>{};
  }
  __device__ __forceinline__ void get_copy(int i, const uint4& words) {
    rows[i] = {{words.x, words.y, words.z, words.w}};
  }
  // Those of product j.
  __device__ __forceinline__ void get(int j, float (&out)[kLaneRows][2]) const {
#pragma unroll
    for (int i = 0; i < kLaneRows; ++i) unpack<T, 2>(Pack<T, 2>{{rows[i].words[j]}}, out[i]);
  }
  __device__ __forceinline__ void set(int j, const float (&in)[kLaneRows][2]) {
#pragma unroll
    for (int i = 0; i < kLaneRows; ++i) rows[i].words[j] = pack<T, 2>(in[i]).words[0];
  }
};

/// The gradient, but for its scale, of a right operand [rank, width], as LoRA's A is one of the input's
/// gradient: left^T tile, summed over tiles below each other.
struct RightGradient {
  Sum sums[kLaneColumns] = {};  ///< [ranks, 8] each: of the columns that have the same place in their lanes

  /// load_left's operand with ranks as its rows, and the tile's rows as the inner dimension.
  static __device__ __forceinline__ LeftHalf transposed_left(const Right& left) {
    return {{transposed(left.words[0]), transposed(left.words[1])}};
  }

  /// Of the tile's numbers those of product j.
  template <typename T>
  __device__ __forceinline__ void add(int j, const LeftHalf& transposed_left, const TileNumbers<T>& tile) {
    const unsigned first = tile.rows[0].words[j], second = tile.rows[1].words[j];
    multiply_add<T>(sums[2 * j], transposed_left, (first & 0xFFFFU) | second << 16U);
    multiply_add<T>(sums[2 * j + 1], transposed_left, first >> 16U | (second & 0xFFFF0000U));
  }
  /// Into [rank, width], of the tile that begins at `first_column`.
  __device__ __forceinline__ void store(float* to, int rank, std::int64_t first_column, std::int64_t width,
                                        const TileLane& lane) const {
    // Which ranks are rows of a sum: see cuda_low_rank.h.
    const bool is_eight = rank == 8;
    const int first_row = is_eight ? lane.group : lane.group / 2 * 4 + lane.group % 2;
#pragma unroll
    for (int n = 0; n < 4; ++n) {
      const std::int64_t column = first_column + (2 * lane.quarter + n % 2) * kLaneColumns;
      if ((is_eight && n >= 2) || column >= width) continue;
      auto* const four = reinterpret_cast<float4*>(to + (first_row + n / 2 * 2) * width + column);
#pragma unroll
      for (int i = 0; i < kLaneColumns / 4; ++i)
        four[i] = make_float4(sums[4 * i].values[n], sums[4 * i + 1].values[n], sums[4 * i + 2].values[n],
                              sums[4 * i + 3].values[n]);
    }
  }
};

}  // namespace lorikeet::ops::device
