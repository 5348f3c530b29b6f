#pragma once

#include <cstdint>
#include <type_traits>

#include "ops/causal_conv/causal_conv_cuda.h"
#include "ops/cuda_vector.h"
#include "ops/norm/load_parameters.h"

// What kernels of convolutions over packed sequences share: a thread has one access of channels and goes down
// the rows of a tile, with what the taps of the next row need in registers, so that each row is read once for
// a tile. All threads of a block have the same rows, and so the same branches at the ends of sequences.
namespace lorikeet::ops::device::causal {

constexpr int kThreads = 128;
// Rows of a tile at most. Backward reads taps - 1 rows more on either side.
constexpr std::int64_t kForwardTile = 16, kBackwardTile = 32;

/// All but the pointers, which are arguments of their own.
struct Shape {
  std::int64_t rows, channels, sequences, x_row, tile_rows;
  bool is_fp32;
};

/// Rows of one sequence, within a tile.
struct Piece {
  std::int64_t sequence, begins, ends;  // the sequence, its first row and the one behind its last
  std::int64_t first, last;             // the piece's, `last` is behind it
};

/// The sequence that has the row.
__device__ __forceinline__ std::int64_t sequence_of(std::int64_t row, const std::int32_t* bounds,
                                                    std::int64_t sequences) {
  std::int64_t low = 0, high = sequences;
  while (high - low > 1) {
    const std::int64_t middle = (low + high) / 2;
    (bounds[middle] <= row ? low : high) = middle;
  }
  return low;
}

/// Calls f(piece) for the pieces of this block's tiles.
template <typename F>
__device__ __forceinline__ void visit(const Shape& shape, const std::int32_t* bounds, const F& f) {
  const std::int64_t step = gridDim.y * shape.tile_rows;
  for (std::int64_t begin = blockIdx.y * shape.tile_rows; begin < shape.rows; begin += step) {
    const std::int64_t end = begin + shape.tile_rows < shape.rows ? begin + shape.tile_rows : shape.rows;
    std::int64_t sequence = sequence_of(begin, bounds, shape.sequences);
    for (std::int64_t row = begin; row < end;) {
      while (bounds[sequence + 1] <= row) ++sequence;
      const std::int64_t ends = bounds[sequence + 1], last = ends < end ? ends : end;
      f(Piece{sequence, bounds[sequence], ends, row, last});
      row = last;
    }
  }
}

/// The weights of n channels from `channel` on, by their distance in rows.
template <typename T, int taps, int n>
__device__ __forceinline__ void load_weights(const void* weight, bool is_fp32, std::int64_t channel,
                                             float (&out)[taps][n]) {
  constexpr int kAtOnce = taps == 4 ? 4 : 1;  // a channel's lie next to each other
#pragma unroll
  for (int i = 0; i < n; ++i) {
#pragma unroll
    for (int tap = 0; tap < taps; tap += kAtOnce) {
      float found[kAtOnce];
      load_parameters<T, kAtOnce>(weight, is_fp32, (channel + i) * taps + tap, 0.0F, found);
#pragma unroll
      for (int k = 0; k < kAtOnce; ++k) out[taps - 1 - tap - k][i] = found[k];
    }
  }
}

/// The sums of a row, from its own numbers and those of the taps - 1 rows before it, the nearest first.
template <typename T, int taps, int n>
__device__ __forceinline__ void add_up(const float (&weight)[taps][n], const Pack<T, n>& row,
                                       const Pack<T, n> (&past)[taps - 1], float (&sum)[n]) {
  float x[n];
#pragma unroll
  for (int j = taps - 1; j >= 0; --j) {
    unpack<T, n>(j == 0 ? row : past[j - 1], x);
#pragma unroll
    for (int i = 0; i < n; ++i) sum[i] = weight[j][i] * x[i] + (j == taps - 1 ? 0.0F : sum[i]);
  }
}

/// The row becomes the nearest of those before the next one.
template <typename Row, int before>
__device__ __forceinline__ void move_down(const Row& row, Row (&past)[before]) {
#pragma unroll
  for (int j = before - 1; j > 0; --j) past[j] = past[j - 1];
  past[0] = row;
}

/// A row in front of a sequence: number `row` of it, from -before_rows on, of `before` at this thread's
/// channels; zeros where `before` is null.
template <int before_rows, int n, typename T>
__device__ __forceinline__ Pack<T, n> row_before(const Piece& piece, std::int64_t channels, std::int64_t row,
                                                 const T* before) {
  if (before == nullptr) return {};
  return load_pack<n>(before + ((piece.sequence + 1) * before_rows + row) * channels);
}

/// A number for each of a thread's channels.
template <int n>
struct Numbers {
  float of[n];
};

/// The gradient of the input of the sums of row t, from d, the gradients of the sums of the rows t + taps - 1
/// and, the nearest first, of those before it: sum_j w[j] d[t + j].
template <int taps, int n>
__device__ __forceinline__ void add_up_behind(const float (&w)[taps][n], const Numbers<n>& d,
                                              const Numbers<n> (&past_d)[taps - 1], float (&out)[n]) {
#pragma unroll
  for (int i = 0; i < n; ++i) {
    out[i] = w[0][i] * past_d[taps - 2].of[i];
#pragma unroll
    for (int j = 1; j < taps - 1; ++j) out[i] += w[j][i] * past_d[taps - 2 - j].of[i];
    out[i] += w[taps - 1][i] * d.of[i];
  }
}

/// A thread has `elements` channels; tiles of at most `most` rows.
inline Shape shape_of(const CausalConvOnDevice& in, int elements, std::int64_t most) {
  // Threads that keep a large card's memory busy: for fewer rows tiles are smaller.
  constexpr std::int64_t kThreadsOfCard = 1 << 17;
  const std::int64_t tile = in.rows * (in.channels / elements) / kThreadsOfCard;
  return {.rows = in.rows,
          .channels = in.channels,
          .sequences = in.sequences,
          .x_row = in.x_row,
          .tile_rows = tile < 1 ? 1 : (tile < most ? tile : most),
          .is_fp32 = in.is_fp32};
}

inline dim3 grid_of(const Shape& shape, int elements) {
  const std::int64_t tiles = (shape.rows + shape.tile_rows - 1) / shape.tile_rows;
  return grid_of_rows(tiles, shape.channels, std::int64_t{kThreads} * elements);
}

template <int value>
using Constant = std::integral_constant<int, value>;

/// Calls f with a null pointer of the element type, and the number of taps, 2 to 4, as a constant.
template <typename F>
void dispatch_taps(CudaElement element, std::int64_t taps, const F& f) {
  dispatch(element, [&](auto* typed) {
    switch (taps) {
      case 2: return f(typed, Constant<2>());
      case 3: return f(typed, Constant<3>());
      default: return f(typed, Constant<4>());
    }
  });
}

}  // namespace lorikeet::ops::device::causal
