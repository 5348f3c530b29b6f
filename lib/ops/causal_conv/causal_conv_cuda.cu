// What the taps of the next row need is in registers: each row is read once for a tile (tiles_cuda.h).
#include "ops/causal_conv/causal_conv_cuda.h"

#include <type_traits>

#include "ops/activation/activate.h"
#include "ops/causal_conv/tiles_cuda.h"

namespace lorikeet::ops {
namespace {

using device::activate;
using device::load_pack;
using device::Pack;
using device::store_pack;
using device::unpack;
using namespace device::causal;

// The rows before a piece's first one. x, before: at this thread's channels.
template <typename T, int n, int before_rows>
__device__ __forceinline__ void load_past(const Piece& piece, const Shape& shape, const T* x, const T* before,
                                          Pack<T, n> (&past)[before_rows]) {
#pragma unroll
  for (int j = 0; j < before_rows; ++j) {
    const std::int64_t row = piece.first - 1 - j;
    past[j] = row >= piece.begins
                  ? load_pack<n>(x + row * shape.x_row)
                  : row_before<before_rows, n>(piece, shape.channels, row - piece.begins, before);
  }
}

// The biases of a thread's channels; nothing is loaded or added where there are none.
template <typename T, int n, bool biased>
struct Bias {
  float of[biased ? n : 1];

  __device__ __forceinline__ Bias(const void* bias, bool is_fp32, std::int64_t channel) {
    if constexpr (biased) device::load_parameters<T, n>(bias, is_fp32, channel, 0.0F, of);
  }

  __device__ __forceinline__ void add_to(float (&sum)[n]) const {
    if constexpr (biased) {
#pragma unroll
      for (int i = 0; i < n; ++i) sum[i] += of[i];
    }
  }
};

template <typename T, int taps, bool biased>
__global__ void __launch_bounds__(kThreads)
    causal_conv_kernel(Shape shape, const std::int32_t* bounds, const T* x, const void* weight,
                       const void* bias, bool bias_is_fp32, const T* before, T* y) {
  constexpr int n = device::kElements<T, true>, kAtOnce = 4;
  const std::int64_t channel = (static_cast<std::int64_t>(blockIdx.x) * kThreads + threadIdx.x) * n;
  if (channel >= shape.channels) return;
  float w[taps][n], sum[n];
  Pack<T, n> past[taps - 1];
  load_weights<T, taps>(weight, shape.is_fp32, channel, w);
  const Bias<T, n, biased> b(bias, bias_is_fp32, channel);
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
        b.add_to(sum);
#pragma unroll
        for (int i = 0; i < n; ++i) sum[i] = activate(Activation::kSilu, sum[i]).value;
        store_pack<n>(device::pack<T, n>(sum), y + (first + k) * shape.channels);
      }
    }
  });
}

// With d the gradient of a row's sum:  dx[t] = sum_j w[j] d[t + j]. Each row's d is computed from x again;
// behind the sequence it is 0.
template <typename T, int taps, bool biased>
__global__ void __launch_bounds__(kThreads)
    causal_conv_backward_kernel(Shape shape, const std::int32_t* bounds, const T* x, const void* weight,
                                const void* bias, bool bias_is_fp32, const T* dy, T* dx,
                                std::int64_t dx_row) {
  constexpr int n = device::kElements<T, true>, kAtOnce = 2;
  const std::int64_t channel = (static_cast<std::int64_t>(blockIdx.x) * kThreads + threadIdx.x) * n;
  if (channel >= shape.channels) return;
  float w[taps][n];
  Pack<T, n> past[taps - 1];
  Numbers<n> past_d[taps - 1];
  load_weights<T, taps>(weight, shape.is_fp32, channel, w);
  const Bias<T, n, biased> b(bias, bias_is_fp32, channel);
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
          b.add_to(sum);
#pragma unroll
          for (int i = 0; i < n; ++i) d.of[i] *= activate(Activation::kSilu, sum[i]).slope;
        }
        const std::int64_t done = first + k - (taps - 1);
        if (done >= piece.first) {
          float out[n];
          add_up_behind(w, d, past_d, out);
          store_pack<n>(device::pack<T, n>(out), dx + done * dx_row);
        }
        move_down(d, past_d);
      }
    }
  });
}

// Calls f with a null pointer of the element type, and the taps and whether there is a bias as constants.
template <typename F>
void dispatch_forms(CudaElement element, const CausalConvOnDevice& in, const F& f) {
  dispatch_taps(element, in.taps, [&](auto* typed, auto taps) {
    if (in.bias != nullptr) return f(typed, taps, std::true_type());
    f(typed, taps, std::false_type());
  });
}

}  // namespace

void launch_causal_conv(CudaElement element, const CausalConvOnDevice& in, const void* before, void* y,
                        void* stream) {
  if (in.rows == 0 || in.channels == 0) return;
  dispatch_forms(element, in, [&](auto* typed, auto of_taps, auto has_bias) {
    using T = std::remove_pointer_t<decltype(typed)>;
    constexpr int taps = of_taps, n = device::kElements<T, true>;
    constexpr bool biased = has_bias;
    const Shape shape = shape_of(in, n, kForwardTile);
    causal_conv_kernel<T, taps, biased>
        <<<grid_of(shape, n), kThreads, 0, static_cast<cudaStream_t>(stream)>>>(
            shape, in.bounds, static_cast<const T*>(in.x), in.weight, in.bias, in.bias_is_fp32,
            static_cast<const T*>(before), static_cast<T*>(y));
  });
  device::check_launch("causal_conv", cudaGetLastError());
}

void launch_causal_conv_backward(CudaElement element, const CausalConvOnDevice& in, const void* dy, void* dx,
                                 std::int64_t dx_row, void* stream) {
  if (in.rows == 0 || in.channels == 0) return;
  dispatch_forms(element, in, [&](auto* typed, auto of_taps, auto has_bias) {
    using T = std::remove_pointer_t<decltype(typed)>;
    constexpr int taps = of_taps, n = device::kElements<T, true>;
    constexpr bool biased = has_bias;
    const Shape shape = shape_of(in, n, kBackwardTile);
    causal_conv_backward_kernel<T, taps, biased>
        <<<grid_of(shape, n), kThreads, 0, static_cast<cudaStream_t>(stream)>>>(
            shape, in.bounds, static_cast<const T*>(in.x), in.weight, in.bias, in.bias_is_fp32,
            static_cast<const T*>(dy), static_cast<T*>(dx), dx_row);
  });
  device::check_launch("causal_conv_backward", cudaGetLastError());
}

}  // namespace lorikeet::ops
