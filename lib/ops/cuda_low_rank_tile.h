#pragma once

// Included by .cu files alone: low-rank terms added to a tile of a matrix, 16 rows and 32 columns, that a
// warp reads anyway: as four products [16, 8] of the term's left and right operands. Column n of product j is
// the tile's column 8 (n / 2) + 2j + n % 2, so that a lane's sums of a row are 8 neighbours, 16 bytes.
#include "ops/cuda_low_rank.h"

namespace lorikeet::ops::device {

inline constexpr int kTileRows = 16, kTileHalf = kTileRows / 2;  // a lane has one row of each half
inline constexpr int kLaneColumns = 8;                           // 16 bytes
inline constexpr int kTileColumns = kQuarters * kLaneColumns, kTileProducts = kTileColumns / 8;
// A block's tiles lie side by side.
inline constexpr int kTileThreads = 256, kTileWarps = kTileThreads / kWarp;

/// A grid of blocks that cover `columns` along x, and along y take every gridDim.y-th 16 rows: enough to fill
/// a card several times, and few, since each reads its right operands before its first rows.
inline dim3 grid_of_tiles(std::int64_t rows, std::int64_t columns) {
  constexpr std::int64_t kBlocks = 2048;
  const unsigned x = blocks_of(columns, kTileWarps * kTileColumns);
  return {x, blocks_of(rows, kTileRows, (kBlocks + x - 1) / x)};
}

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

/// ranks_of_row of a matrix's transpose.
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

/// Where a lane is among its warp's rows and columns, of which the first is given.
struct TileLane {
  int row, quarter;
  std::int64_t column;  // the first of its eight
  std::int64_t right0;  // the column of the first product whose ranks it holds for the warp

  __device__ __forceinline__ explicit TileLane(std::int64_t first_column) {
    const int lane = static_cast<int>(threadIdx.x) % kWarp;
    row = lane / kQuarters;
    quarter = lane % kQuarters;
    column = first_column + quarter * kLaneColumns;
    right0 = first_column + row / 2 * kLaneColumns + row % 2;
  }
  __device__ __forceinline__ bool is_there(std::int64_t first_row, int half, std::int64_t rows,
                                           std::int64_t width) const {
    return first_row + half * kTileHalf < rows && column < width;
  }
};

/// The right operand's part of a lane, for all rows; zeros where there is no term or no column.
template <bool of_columns, typename T>
__device__ __forceinline__ void load_right(const Term<T>& term, const TileLane& lane, std::int64_t width,
                                           Ranks (&right)[kTileProducts]) {
#pragma unroll
  for (int j = 0; j < kTileProducts; ++j) {
    right[j] = {};
    const std::int64_t column = lane.right0 + 2 * j;
    if (term.left == nullptr || column >= width) continue;
    if constexpr (of_columns) {
      right[j] = ranks_of_column(term.right + column, width, term.shape.rank, lane.quarter);
    } else {
      right[j] = ranks_of_row(term.right + column * term.shape.rank, term.shape.rank, lane.quarter);
    }
  }
}

/// The left operand's part of a lane: of its two rows.
template <typename T>
__device__ __forceinline__ void load_left(const Term<T>& term, std::int64_t row, std::int64_t rows,
                                          int quarter, Ranks (&left)[2]) {
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    left[half] = {};
    if (term.left != nullptr && row + half * kTileHalf < rows)
      left[half] =
          ranks_of_row(term.left + (row + half * kTileHalf) * term.shape.left_row, term.shape.rank, quarter);
  }
}

/// Adds a term to the two numbers of each of a lane's rows that are of one product.
template <typename T>
__device__ __forceinline__ void add_product(const Term<T>& term, const Ranks (&left)[2], const Ranks& right,
                                            float (&to)[2][2]) {
  if (term.left == nullptr) return;
  const Sum sum = product_of_ranks<T>(left[0], left[1], right);
#pragma unroll
  for (int i = 0; i < 4; ++i) to[i / 2][i % 2] += term.shape.scale * sum.values[i];
}

/// A lane's numbers of its two rows, as they lie in memory; zeros in rows and columns that aren't there.
template <typename T>
struct TileNumbers {
  Pack<T, kLaneColumns> rows[2];

  __device__ __forceinline__ void load(int half, const T* from, bool is_there) {
    rows[half] = is_there ? load_pack<kLaneColumns>(from) : Pack<T, kLaneColumns>{};
  }
  // Those of product j.
  __device__ __forceinline__ void get(int j, float (&out)[2][2]) const {
#pragma unroll
    for (int half = 0; half < 2; ++half) unpack<T, 2>(Pack<T, 2>{{rows[half].words[j]}}, out[half]);
  }
  __device__ __forceinline__ void set(int j, const float (&in)[2][2]) {
#pragma unroll
    for (int half = 0; half < 2; ++half) rows[half].words[j] = pack<T, 2>(in[half]).words[0];
  }
};

}  // namespace lorikeet::ops::device
