// Rows are visited in blocks of channels, all rows of a tile in one block before the next: loads are
// contiguous along the channels, and a row that several taps read, like the weights, stays in the first-level
// cache. A result doesn't depend on where tiles or threads begin: each is the same sum in the same loop.
#include "ops/causal_conv/cpu.h"

#include <algorithm>

#include "ops/causal_conv/cpu_tiles.h"

namespace lorikeet::ops::cpu {
namespace {

using vector::Bf16;
using vector::load;
using vector::store;

constexpr std::int64_t kBlock = 512;  // channels

// Rows of one sequence that follow each other; `before`, `past` and `following` say what lies around them.
template <typename T>
struct Tile {
  const T* x;
  std::int64_t x_row;  // elements from one row to the next
  const T* before;     // the rows before the sequence, or nullptr: zeros
  std::int64_t past;   // rows of the sequence in front of x
  std::int64_t rows;
  std::int64_t following;  // rows of the sequence behind these
  std::int64_t channels;
  const float* weight;  // [taps, channels]
  const float* bias;    // [channels], or nullptr: zeros
};

template <typename T>
struct Forward {
  Tile<T> in;
  T* y;  // dense
};

template <typename T>
struct Backward {
  Tile<T> in;
  const T* dy;  // dense
  T* dx;
  std::int64_t dx_row;
};

template <typename T>
constexpr T kZeros[kBlock] = {};

// What the taps of a row multiply in a block of channels that begins at `channel`; j is the distance in rows.
template <int taps, bool biased, typename T>
struct Window {
  const T* x[taps];
  const float* w[taps];
  const float* bias;

  LORIKEET_INLINE Window(const Tile<T>& in, std::int64_t row, std::int64_t channel)
      : bias(biased ? in.bias + channel : nullptr) {
    for (int j = 0; j < taps; ++j) {
      const std::int64_t at = row - j + in.past;  // in the sequence
      if (at >= 0) {
        x[j] = in.x + (row - j) * in.x_row + channel;
      } else if (in.before != nullptr) {
        x[j] = in.before + (at + taps - 1) * in.channels + channel;
      } else {
        x[j] = kZeros<T>;
      }
      w[j] = in.weight + (taps - 1 - j) * in.channels + channel;
    }
  }

  LORIKEET_INLINE float sum(std::int64_t i) const {
    float total = w[taps - 1][i] * load(x[taps - 1][i]);
#pragma GCC unroll 8
    for (int j = taps - 2; j >= 0; --j) total += w[j][i] * load(x[j][i]);
    if constexpr (biased) total += bias[i];
    return total;
  }
};

template <int taps, bool biased, typename T>
LORIKEET_INLINE void forward_rows(const Forward<T>& f) {
  for (std::int64_t channel = 0; channel < f.in.channels; channel += kBlock) {
    const std::int64_t count = std::min(kBlock, f.in.channels - channel);
    for (std::int64_t row = 0; row < f.in.rows; ++row) {
      const Window<taps, biased, T> window(f.in, row, channel);
      T* y = f.y + row * f.in.channels + channel;
#pragma GCC ivdep
      for (std::int64_t i = 0; i < count; ++i) {
        const float sum = window.sum(i);
        store(sum * vector::sigmoid(sum), y[i]);
      }
    }
  }
}

// With d the gradient of a row's sum:  dx[t] = sum_j w[j] d[t + j]. The last `taps` of d are kept, so that
// each is computed once for a tile.
template <int taps, bool biased, typename T>
LORIKEET_INLINE void backward_rows(const Backward<T>& b) {
  const std::int64_t there = b.in.rows + b.in.following;
  float kept[taps][kBlock];
  for (std::int64_t channel = 0; channel < b.in.channels; channel += kBlock) {
    const std::int64_t count = std::min(kBlock, b.in.channels - channel);
    for (std::int64_t row = 0; row < b.in.rows + taps - 1; ++row) {
      const Window<taps, biased, T> window(b.in, row, channel);
      if (row < there) {
        const T* dy = b.dy + row * b.in.channels + channel;
        float* d = kept[row % taps];
#pragma GCC ivdep
        for (std::int64_t i = 0; i < count; ++i) {
          const float sum = window.sum(i), s = vector::sigmoid(sum);
          d[i] = load(dy[i]) * (s * (1.0F + sum * (1.0F - s)));
        }
      }
      const std::int64_t done = row - (taps - 1);
      if (done < 0) continue;
      const float* d[taps];
      for (int j = 0; j < taps; ++j) d[j] = done + j < there ? kept[(done + j) % taps] : kZeros<float>;
      T* dx = b.dx + done * b.dx_row + channel;
#pragma GCC ivdep
      for (std::int64_t i = 0; i < count; ++i) {
        float total = window.w[0][i] * d[0][i];
#pragma GCC unroll 8
        for (int j = 1; j < taps; ++j) total += window.w[j][i] * d[j][i];
        store(total, dx[i]);
      }
    }
  }
}

// Two loops, so that the one without a bias reads none.
template <int taps, typename T>
LORIKEET_INLINE void forward_tile(const Forward<T>& f) {
  if (f.in.bias != nullptr) {
    forward_rows<taps, true>(f);
  } else {
    forward_rows<taps, false>(f);
  }
}

template <int taps, typename T>
LORIKEET_INLINE void backward_tile(const Backward<T>& b) {
  if (b.in.bias != nullptr) {
    backward_rows<taps, true>(b);
  } else {
    backward_rows<taps, false>(b);
  }
}

LORIKEET_CONVOLUTION_KERNEL(Forward, forward, float)
LORIKEET_CONVOLUTION_KERNEL(Forward, forward, Bf16)
LORIKEET_CONVOLUTION_KERNEL(Backward, backward, float)
LORIKEET_CONVOLUTION_KERNEL(Backward, backward, Bf16)

// Calls f(row, tile) for tiles of all rows over threads, where `row` is the first one of the tile.
template <typename T, typename F>
void for_tiles(const at::Tensor& x, const at::Tensor& weight, const Sequences& sequences,
               const at::Tensor& before, const at::Tensor& bias, const F& f) {
  const std::int64_t x_row = x.stride(0), channels = x.size(1), of_before = weight.size(0) - 1;
  for_sequence_rows(sequences.cu_seqlens, [&](const SequenceRows& rows) {
    f(rows.first,
      Tile<T>{.x = vector::data<T>(x) + rows.first * x_row,
              .x_row = x_row,
              .before =
                  before.defined() ? vector::data<T>(before) + rows.sequence * of_before * channels : nullptr,
              .past = rows.first - rows.begins,
              .rows = rows.last - rows.first,
              .following = rows.ends - rows.last,
              .channels = channels,
              .weight = vector::data<float>(weight),
              .bias = bias.defined() ? vector::data<float>(bias) : nullptr});
  });
}

}  // namespace

void causal_conv(const at::Tensor& x, const at::Tensor& weight, const Sequences& sequences,
                 const at::Tensor& before, const at::Tensor& bias, const at::Tensor& y) {
  vector::dispatch(x, [&]<typename T>(T*) {
    for_tiles<T>(x, weight, sequences, before, bias, [&](std::int64_t row, const Tile<T>& tile) {
      run(Forward<T>{tile, vector::data<T>(y) + row * y.size(1)}, weight.size(0));
    });
  });
}

void causal_conv_backward(const at::Tensor& dy, const at::Tensor& x, const at::Tensor& weight,
                          const Sequences& sequences, const at::Tensor& bias, const at::Tensor& dx) {
  vector::dispatch(x, [&]<typename T>(T*) {
    for_tiles<T>(x, weight, sequences, {}, bias, [&](std::int64_t row, const Tile<T>& tile) {
      run(Backward<T>{.in = tile,
                      .dy = vector::data<T>(dy) + row * dy.size(1),
                      .dx = vector::data<T>(dx) + row * dx.stride(0),
                      .dx_row = dx.stride(0)},
          weight.size(0));
    });
  });
}

}  // namespace lorikeet::ops::cpu
