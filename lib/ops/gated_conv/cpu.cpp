// Rows are visited in blocks of channels, all rows of a tile in one block before the next. What the taps of a
// row multiply is kept of the last rows, each row in the place row % taps. A result doesn't depend on where
// tiles or threads begin: each is the same sum in the same loop.
#include "ops/gated_conv/cpu.h"

#include <algorithm>

#include "ops/causal_conv/cpu_tiles.h"

namespace lorikeet::ops::cpu {
namespace {

using vector::Bf16;
using vector::load;
using vector::store;

constexpr std::int64_t kBlock = 512;  // channels

template <typename T>
struct Forward {
  SequenceRows rows;
  const T* projected;  // of the first of all rows
  const T* before;     // the rows before the sequence, or nullptr: zeros
  std::int64_t channels;
  const float* weight;  // [taps, channels]
  T* y;
};

template <typename T>
struct Backward {
  SequenceRows rows;
  const T *projected, *dy;
  std::int64_t channels;
  const float* weight;
  T *dprojected, *y;  // y: or nullptr
};

// b x of a row, rounded. projected: the row's, at the block's first channel.
template <typename T>
LORIKEET_INLINE void gated(const T* projected, std::int64_t channels, std::int64_t count, float* u) {
  const T *b = projected, *x = projected + 2 * channels;
#pragma GCC ivdep
  for (std::int64_t i = 0; i < count; ++i) {
    T rounded;
    store(load(b[i]) * load(x[i]), rounded);
    u[i] = load(rounded);
  }
}

// The kept rows by their distance from `row`, and the weights.
template <int taps>
struct Window {
  const float* u[taps];
  const float* w[taps];

  LORIKEET_INLINE Window(const float (&kept)[taps][kBlock], std::int64_t row, const float* weight,
                         std::int64_t channels) {
    for (int j = 0; j < taps; ++j) {
      u[j] = kept[(row - j + taps) % taps];
      w[j] = weight + (taps - 1 - j) * channels;
    }
  }

  LORIKEET_INLINE float sum(std::int64_t i) const {
    float total = w[taps - 1][i] * u[taps - 1][i];
#pragma GCC unroll 8
    for (int j = taps - 2; j >= 0; --j) total += w[j][i] * u[j][i];
    return total;
  }
};

// Keeps what the rows before the tile's first one have been multiplied to.
template <int taps, typename T>
LORIKEET_INLINE void keep_past(const SequenceRows& rows, const T* projected, const T* before,
                               std::int64_t channels, std::int64_t channel, std::int64_t count,
                               float (&kept)[taps][kBlock]) {
  for (int j = 1; j < taps; ++j) {
    const std::int64_t row = rows.first - j;
    float* u = kept[(row + taps) % taps];
    if (row >= rows.begins) {
      gated(projected + row * 3 * channels + channel, channels, count, u);
    } else if (before != nullptr) {
      const T* from = before + (row - rows.begins + taps - 1) * channels + channel;
      for (std::int64_t i = 0; i < count; ++i) u[i] = load(from[i]);
    } else {
      std::fill_n(u, count, 0.0F);
    }
  }
}

template <int taps, typename T>
LORIKEET_INLINE void forward_tile(const Forward<T>& f) {
  float kept[taps][kBlock];
  for (std::int64_t channel = 0; channel < f.channels; channel += kBlock) {
    const std::int64_t count = std::min(kBlock, f.channels - channel);
    keep_past<taps>(f.rows, f.projected, f.before, f.channels, channel, count, kept);
    for (std::int64_t row = f.rows.first; row < f.rows.last; ++row) {
      const T* projected = f.projected + row * 3 * f.channels + channel;
      gated(projected, f.channels, count, kept[row % taps]);
      const Window<taps> window(kept, row, f.weight + channel, f.channels);
      const T* c = projected + f.channels;
      T* y = f.y + row * f.channels + channel;
#pragma GCC ivdep
      for (std::int64_t i = 0; i < count; ++i) store(load(c[i]) * window.sum(i), y[i]);
    }
  }
}

// With d = c dy the gradient of a row's sum, that of u is  du[t] = sum_j w[j] d[t + j].
template <int taps, typename T>
LORIKEET_INLINE void backward_tile(const Backward<T>& b) {
  float kept[taps][kBlock], kept_d[taps][kBlock];
  const std::int64_t width = 3 * b.channels;
  for (std::int64_t channel = 0; channel < b.channels; channel += kBlock) {
    const std::int64_t count = std::min(kBlock, b.channels - channel);
    keep_past<taps>(b.rows, b.projected, static_cast<const T*>(nullptr), b.channels, channel, count, kept);
    for (std::int64_t row = b.rows.first; row < b.rows.last + taps - 1; ++row) {
      float* d = kept_d[row % taps];
      if (row < b.rows.ends) {
        const T *c = b.projected + row * width + b.channels + channel,
                *dy = b.dy + row * b.channels + channel;
#pragma GCC ivdep
        for (std::int64_t i = 0; i < count; ++i) d[i] = load(c[i]) * load(dy[i]);
      } else {
        std::fill_n(d, count, 0.0F);
      }
      if (row < b.rows.last) {
        const T *projected = b.projected + row * width + channel, *dy = b.dy + row * b.channels + channel;
        gated(projected, b.channels, count, kept[row % taps]);
        const Window<taps> window(kept, row, b.weight + channel, b.channels);
        T* dc = b.dprojected + row * width + b.channels + channel;
#pragma GCC ivdep
        for (std::int64_t i = 0; i < count; ++i) store(load(dy[i]) * window.sum(i), dc[i]);
        if (b.y != nullptr) {
          const T* c = projected + b.channels;
          T* y = b.y + row * b.channels + channel;
#pragma GCC ivdep
          for (std::int64_t i = 0; i < count; ++i) store(load(c[i]) * window.sum(i), y[i]);
        }
      }
      const std::int64_t done = row - (taps - 1);
      if (done < b.rows.first) continue;
      const float *after[taps], *w[taps];
      for (int j = 0; j < taps; ++j) {
        after[j] = kept_d[(done + j) % taps];
        w[j] = b.weight + (taps - 1 - j) * b.channels + channel;
      }
      const T *gate = b.projected + done * width + channel, *x = gate + 2 * b.channels;
      T *dgate = b.dprojected + done * width + channel, *dx = dgate + 2 * b.channels;
#pragma GCC ivdep
      for (std::int64_t i = 0; i < count; ++i) {
        float du = w[0][i] * after[0][i];
#pragma GCC unroll 8
        for (int j = 1; j < taps; ++j) du += w[j][i] * after[j][i];
        store(du * load(x[i]), dgate[i]);
        store(du * load(gate[i]), dx[i]);
      }
    }
  }
}

LORIKEET_CONVOLUTION_KERNEL(Forward, forward, float)
LORIKEET_CONVOLUTION_KERNEL(Forward, forward, Bf16)
LORIKEET_CONVOLUTION_KERNEL(Backward, backward, float)
LORIKEET_CONVOLUTION_KERNEL(Backward, backward, Bf16)

}  // namespace

void gated_conv(const at::Tensor& projected, const at::Tensor& weight, const Sequences& sequences,
                const at::Tensor& before, const at::Tensor& y) {
  const std::int64_t taps = weight.size(0), channels = weight.size(1);
  vector::dispatch(projected, [&]<typename T>(T*) {
    for_sequence_rows(sequences.cu_seqlens, [&](const SequenceRows& rows) {
      const T* first =
          before.defined() ? vector::data<T>(before) + rows.sequence * (taps - 1) * channels : nullptr;
      run(Forward<T>{rows, vector::data<T>(projected), first, channels, vector::data<float>(weight),
                     vector::data<T>(y)},
          taps);
    });
  });
}

void gated_conv_backward(const at::Tensor& dy, const at::Tensor& projected, const at::Tensor& weight,
                         const Sequences& sequences, const at::Tensor& dprojected, const at::Tensor& y) {
  vector::dispatch(projected, [&]<typename T>(T*) {
    for_sequence_rows(sequences.cu_seqlens, [&](const SequenceRows& rows) {
      run(Backward<T>{rows, vector::data<T>(projected), vector::data<T>(dy), weight.size(1),
                      vector::data<float>(weight), vector::data<T>(dprojected),
                      y.defined() ? vector::data<T>(y) : nullptr},
          weight.size(0));
    });
  });
}

}  // namespace lorikeet::ops::cpu
