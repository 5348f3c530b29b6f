// A thread has one access of channels and goes down the rows of a tile, with what the taps of the next row
// need in registers: each row is read once for a tile. All threads of a block have the same rows, and so the
// same branches at the ends of sequences.
#include "ops/causal_conv/causal_conv_cuda.h"

#include <type_traits>

#include "ops/activation/activate.h"
#include "ops/norm/load_parameters.h"

namespace lorikeet::ops {
namespace {

using device::activate;
using device::load_pack;
using device::Pack;
using device::store_pack;
using device::unpack;

constexpr int kThreads = 128;
// Threads that keep a large card's memory busy: for fewer rows tiles are smaller.
constexpr std::int64_t kThreadsOfCard = 1 << 17;
// Rows of a tile at most. Backward reads taps - 1 rows more on either side.
constexpr std::int64_t kForwardTile = 16, kBackwardTile = 32;

// All but the pointers, which are arguments of their own.
struct Shape {
  std::int64_t rows, channels, sequences, x_row, tile_rows;
  bool is_fp32;
};

// Rows of one sequence, within a tile.
struct Piece {
  std::int64_t sequence, begins, ends;  // the sequence, its first row and the one behind its last
  std::int64_t first, last;             // the piece's, `last` is behind it
};

// The sequence that has the row.
__device__ __forceinline__ std::int64_t sequence_of(std::int64_t row, const std::int32_t* bounds,
                                                    std::int64_t sequences) {
  std::int64_t low = 0, high = sequences;
  while (high - low > 1) {
    const std::int64_t middle = (low + high) / 2;
    (bounds[middle] <= row ? low : high) = middle;
  }
  return low;
}

// Calls f(piece) for the pieces of this block's tiles.
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

// The weights of n channels from `channel` on, by their distance in rows.
template <typename T, int taps, int n>
__device__ __forceinline__ void load_weights(const void* weight, bool is_fp32, std::int64_t channel,
                                             float (&out)[taps][n]) {
  constexpr int kAtOnce = taps == 4 ? 4 : 1;  // a channel's lie next to each other
#pragma unroll
  for (int i = 0; i < n; ++i) {
#pragma unroll
    for (int tap = 0; tap < taps; tap += kAtOnce) {
      float found[kAtOnce];
      device::load_parameters<T, kAtOnce>(weight, is_fp32, (channel + i) * taps + tap, 0.0F, found);
#pragma unroll
      for (int k = 0; k < kAtOnce; ++k) out[taps - 1 - tap - k][i] = found[k];
    }
  }
}

// The sums of a row, from its own numbers and those of the taps - 1 rows before it, the nearest first.
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

// The row becomes the nearest of those before the next one.
template <typename Row, int before>
__device__ __forceinline__ void move_down(const Row& row, Row (&past)[before]) {
#pragma unroll
  for (int j = before - 1; j > 0; --j) past[j] = past[j - 1];
  past[0] = row;
}

// The rows before a piece's first one. x, before: at this thread's channels.
template <typename T, int n, int before_rows>
__device__ __forceinline__ void load_past(const Piece& piece, const Shape& shape, const T* x, const T* before,
                                          Pack<T, n> (&past)[before_rows]) {
#pragma unroll
  for (int j = 0; j < before_rows; ++j) {
    const std::int64_t row = piece.first - 1 - j;
    past[j] = {};
    if (row >= piece.begins) {
      past[j] = load_pack<n>(x + row * shape.x_row);
    } else if (before != nullptr) {
      const std::int64_t at = (piece.sequence + 1) * before_rows + row - piece.begins;
      past[j] = load_pack<n>(before + at * shape.channels);
    }
  }
}

// A number for each of a thread's channels.
template <int n>
struct Numbers {
  float of[n];
};

template <typename T, int taps>
__global__ void __launch_bounds__(kThreads)
    causal_conv_kernel(Shape shape, const std::int32_t* bounds, const T* x, const void* weight,
                       const T* before, T* y) {
  constexpr int n = device::kElements<T, true>, kAtOnce = 4;
  const std::int64_t channel = (static_cast<std::int64_t>(blockIdx.x) * kThreads + threadIdx.x) * n;
  if (channel >= shape.channels) return;
  float w[taps][n], sum[n];
  Pack<T, n> past[taps - 1];
  load_weights<T, taps>(weight, shape.is_fp32, channel, w);
  x += channel;
  y += channel;
  if (before != nullptr) before += channel;
  visit(shape, bounds, [&](const Piece& piece) {
    load_past<T, n>(piece, shape, x, before, past);
    for (std::int64_t first = piece.first; first < piece.last; first += kAtOnce) {
      // Before any store: the compiler moves no load above a store that may alias.
      Pack<T, n> next[kAtOnce];
#pragma unroll
      for (int k = 0; k < kAtOnce; ++k)
        if (first + k < piece.last) next[k] = load_pack<n>(x + (first + k) * shape.x_row);
#pragma unroll
      for (int k = 0; k < kAtOnce; ++k) {
        if (first + k >= piece.last) break;
        add_up<T>(w, next[k], past, sum);
        move_down(next[k], past);
#pragma unroll
        for (int i = 0; i < n; ++i) sum[i] = activate(Activation::kSilu, sum[i]).value;
        store_pack<n>(device::pack<T, n>(sum), y + (first + k) * shape.channels);
      }
    }
  });
}

// With d the gradient of a row's sum:  dx[t] = sum_j w[j] d[t + j]. Each row's d is computed from x again;
// behind the sequence it is 0.
template <typename T, int taps>
__global__ void __launch_bounds__(kThreads)
    causal_conv_backward_kernel(Shape shape, const std::int32_t* bounds, const T* x, const void* weight,
                                const T* dy, T* dx, std::int64_t dx_row) {
  constexpr int n = device::kElements<T, true>, kAtOnce = 2;
  const std::int64_t channel = (static_cast<std::int64_t>(blockIdx.x) * kThreads + threadIdx.x) * n;
  if (channel >= shape.channels) return;
  float w[taps][n];
  Pack<T, n> past[taps - 1];
  Numbers<n> past_d[taps - 1];
  load_weights<T, taps>(weight, shape.is_fp32, channel, w);
  x += channel;
  dy += channel;
  dx += channel;
  visit(shape, bounds, [&](const Piece& piece) {
    load_past<T, n>(piece, shape, x, static_cast<const T*>(nullptr), past);
#pragma unroll
    for (int j = 0; j < taps - 1; ++j) past_d[j] = {};
    const std::int64_t behind = piece.last + taps - 1;
    for (std::int64_t first = piece.first; first < behind; first += kAtOnce) {
      Pack<T, n> next_x[kAtOnce], next_dy[kAtOnce];
#pragma unroll
      for (int k = 0; k < kAtOnce; ++k) {
        if (first + k >= behind || first + k >= piece.ends) break;
        next_x[k] = load_pack<n>(x + (first + k) * shape.x_row);
        next_dy[k] = load_pack<n>(dy + (first + k) * shape.channels);
      }
#pragma unroll
      for (int k = 0; k < kAtOnce; ++k) {
        if (first + k >= behind) break;
        Numbers<n> d{};
        if (first + k < piece.ends) {
          float sum[n];
          unpack<T, n>(next_dy[k], d.of);
          add_up<T>(w, next_x[k], past, sum);
          move_down(next_x[k], past);
#pragma unroll
          for (int i = 0; i < n; ++i) d.of[i] *= activate(Activation::kSilu, sum[i]).slope;
        }
        const std::int64_t done = first + k - (taps - 1);
        if (done >= piece.first) {
          float out[n];
#pragma unroll
          for (int i = 0; i < n; ++i) {
            out[i] = w[0][i] * past_d[taps - 2].of[i];
#pragma unroll
            for (int j = 1; j < taps - 1; ++j) out[i] += w[j][i] * past_d[taps - 2 - j].of[i];
            out[i] += w[taps - 1][i] * d.of[i];
          }
          store_pack<n>(device::pack<T, n>(out), dx + done * dx_row);
        }
        move_down(d, past_d);
      }
    }
  });
}

Shape shape_of(const CausalConvOnDevice& in, int elements, std::int64_t most) {
  const std::int64_t tile = in.rows * (in.channels / elements) / kThreadsOfCard;
  return {.rows = in.rows,
          .channels = in.channels,
          .sequences = in.sequences,
          .x_row = in.x_row,
          .tile_rows = tile < 1 ? 1 : (tile < most ? tile : most),
          .is_fp32 = in.is_fp32};
}

dim3 grid_of(const Shape& shape, int elements) {
  const std::int64_t tiles = (shape.rows + shape.tile_rows - 1) / shape.tile_rows;
  return device::grid_of_rows(tiles, shape.channels, std::int64_t{kThreads} * elements);
}

template <int value>
using Constant = std::integral_constant<int, value>;

// Calls f with a null pointer of the element type, and the number of taps as a constant.
template <typename F>
void dispatch(CudaElement element, std::int64_t taps, const F& f) {
  device::dispatch(element, [&](auto* typed) {
    switch (taps) {
      case 2: return f(typed, Constant<2>());
      case 3: return f(typed, Constant<3>());
      default: return f(typed, Constant<4>());
    }
  });
}

}  // namespace

void launch_causal_conv(CudaElement element, const CausalConvOnDevice& in, const void* before, void* y,
                        void* stream) {
  if (in.rows == 0 || in.channels == 0) return;
  dispatch(element, in.taps, [&](auto* typed, auto constant) {
    using T = std::remove_pointer_t<decltype(typed)>;
    constexpr int taps = constant, n = device::kElements<T, true>;
    const Shape shape = shape_of(in, n, kForwardTile);
    causal_conv_kernel<T, taps><<<grid_of(shape, n), kThreads, 0, static_cast<cudaStream_t>(stream)>>>(
        shape, in.bounds, static_cast<const T*>(in.x), in.weight, static_cast<const T*>(before),
        static_cast<T*>(y));
  });
  device::check_launch("causal_conv", cudaGetLastError());
}

void launch_causal_conv_backward(CudaElement element, const CausalConvOnDevice& in, const void* dy, void* dx,
                                 std::int64_t dx_row, void* stream) {
  if (in.rows == 0 || in.channels == 0) return;
  dispatch(element, in.taps, [&](auto* typed, auto constant) {
    using T = std::remove_pointer_t<decltype(typed)>;
    constexpr int taps = constant, n = device::kElements<T, true>;
    const Shape shape = shape_of(in, n, kBackwardTile);
    causal_conv_backward_kernel<T, taps>
        <<<grid_of(shape, n), kThreads, 0, static_cast<cudaStream_t>(stream)>>>(
            shape, in.bounds, static_cast<const T*>(in.x), in.weight, static_cast<const T*>(dy),
            static_cast<T*>(dx), dx_row);
  });
  device::check_launch("causal_conv_backward", cudaGetLastError());
}

}  // namespace lorikeet::ops
