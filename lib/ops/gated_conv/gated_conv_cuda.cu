// One pass over memory forward, one backward, which reads b and x of a row a second time, from cache, when
// the gradients of the rows behind it are there (causal_conv/tiles_cuda.h).
#include "ops/gated_conv/gated_conv_cuda.h"

#include <type_traits>

#include "ops/causal_conv/tiles_cuda.h"

namespace lorikeet::ops {
namespace {

using device::load_pack;
using device::Pack;
using device::store_pack;
using device::unpack;
using namespace device::causal;

// The b and x of a row at a thread's channels.
template <typename T, int n>
struct Gated {
  Pack<T, n> b, x;
};

// projected: at this thread's channels.
template <int n, typename T>
__device__ __forceinline__ Gated<T, n> load_gated(const T* projected, const Shape& shape, std::int64_t row) {
  const T* from = projected + row * shape.x_row;
  return {load_pack<n>(from), load_pack<n>(from + 2 * shape.channels)};
}

// b x, rounded.
template <typename T, int n>
__device__ __forceinline__ Pack<T, n> product(const Gated<T, n>& row) {
  float b[n], x[n];
  unpack<T, n>(row.b, b);
  unpack<T, n>(row.x, x);
#pragma unroll
  for (int i = 0; i < n; ++i) b[i] *= x[i];
  return device::pack<T, n>(b);
}

// What the rows before a piece's first one were multiplied to.
template <typename T, int n, int before_rows>
__device__ __forceinline__ void load_past(const Piece& piece, const Shape& shape, const T* projected,
                                          const T* before, Pack<T, n> (&past)[before_rows]) {
#pragma unroll
  for (int j = 0; j < before_rows; ++j) {
    const std::int64_t row = piece.first - 1 - j;
    past[j] = row >= piece.begins
                  ? product(load_gated<n>(projected, shape, row))
                  : row_before<before_rows, n>(piece, shape.channels, row - piece.begins, before);
  }
}

// numbers *= those of the pack.
template <typename T, int n>
__device__ __forceinline__ void multiply(const Pack<T, n>& pack, float (&numbers)[n]) {
  float factors[n];
  unpack<T, n>(pack, factors);
#pragma unroll
  for (int i = 0; i < n; ++i) numbers[i] *= factors[i];
}

template <typename T, int taps>
__global__ void __launch_bounds__(kThreads)
    gated_conv_kernel(Shape shape, const std::int32_t* bounds, const T* projected, const void* weight,
                      const T* before, T* y) {
  constexpr int n = device::kElements<T, true>, kAtOnce = 2;
  const std::int64_t channel = (static_cast<std::int64_t>(blockIdx.x) * kThreads + threadIdx.x) * n;
  if (channel >= shape.channels) return;
  float w[taps][n], sum[n];
  Pack<T, n> past[taps - 1];
  load_weights<T, taps>(weight, shape.is_fp32, channel, w);
  projected += channel;
  y += channel;
  if (before != nullptr) before += channel;
  visit(shape, bounds, [&](const Piece& piece) {
    load_past<T, n>(piece, shape, projected, before, past);
    for (std::int64_t first = piece.first; first < piece.last; first += kAtOnce) {
      // Before any store: the compiler moves no load above a store that may alias.
      Gated<T, n> next[kAtOnce];
      Pack<T, n> c[kAtOnce];
#pragma unroll
      for (int k = 0; k < kAtOnce; ++k) {
        if (first + k >= piece.last) break;
        next[k] = load_gated<n>(projected, shape, first + k);
        c[k] = load_pack<n>(projected + (first + k) * shape.x_row + shape.channels);
      }
#pragma unroll
      for (int k = 0; k < kAtOnce; ++k) {
        if (first + k >= piece.last) break;
        const Pack<T, n> u = product(next[k]);
        add_up<T>(w, u, past, sum);
        move_down(u, past);
        multiply<T, n>(c[k], sum);
        store_pack<n>(device::pack<T, n>(sum), y + (first + k) * shape.channels);
      }
    }
  });
}

// With d = c dy the gradient of a row's sum, that of u is  du[t] = sum_j w[j] d[t + j]; behind the sequence d
// is 0. y: forward's result again, or nullptr.
template <typename T, int taps>
__global__ void __launch_bounds__(kThreads)
    gated_conv_backward_kernel(Shape shape, const std::int32_t* bounds, const T* projected,
                               const void* weight, const T* dy, T* dprojected, T* y) {
  constexpr int n = device::kElements<T, true>;
  const std::int64_t channel = (static_cast<std::int64_t>(blockIdx.x) * kThreads + threadIdx.x) * n;
  if (channel >= shape.channels) return;
  float w[taps][n];
  Pack<T, n> past[taps - 1];
  Numbers<n> past_d[taps - 1];
  load_weights<T, taps>(weight, shape.is_fp32, channel, w);
  projected += channel;
  dy += channel;
  dprojected += channel;
  if (y != nullptr) y += channel;
  visit(shape, bounds, [&](const Piece& piece) {
    load_past<T, n>(piece, shape, projected, static_cast<const T*>(nullptr), past);
#pragma unroll
    for (int j = 0; j < taps - 1; ++j) past_d[j] = {};
    for (std::int64_t row = piece.first; row < piece.last + taps - 1; ++row) {
      const std::int64_t done = row - (taps - 1);
      Numbers<n> d{};
      Gated<T, n> of_done{};
      if (done >= piece.first) of_done = load_gated<n>(projected, shape, done);
      if (row < piece.ends) {
        const Pack<T, n> c = load_pack<n>(projected + row * shape.x_row + shape.channels);
        const Pack<T, n> upstream = load_pack<n>(dy + row * shape.channels);
        unpack<T, n>(upstream, d.of);
        multiply<T, n>(c, d.of);
        if (row < piece.last) {
          float sum[n], dc[n];
          const Pack<T, n> u = product(load_gated<n>(projected, shape, row));
          add_up<T>(w, u, past, sum);
          move_down(u, past);
          unpack<T, n>(upstream, dc);
#pragma unroll
          for (int i = 0; i < n; ++i) dc[i] *= sum[i];
          store_pack<n>(device::pack<T, n>(dc), dprojected + row * shape.x_row + shape.channels);
          if (y != nullptr) {
            multiply<T, n>(c, sum);
            store_pack<n>(device::pack<T, n>(sum), y + row * shape.channels);
          }
        }
      }
      if (done >= piece.first) {
        float du[n], db[n];
        add_up_behind(w, d, past_d, du);
#pragma unroll
        for (int i = 0; i < n; ++i) db[i] = du[i];
        multiply<T, n>(of_done.x, db);
        multiply<T, n>(of_done.b, du);
        T* to = dprojected + done * shape.x_row;
        store_pack<n>(device::pack<T, n>(db), to);
        store_pack<n>(device::pack<T, n>(du), to + 2 * shape.channels);
      }
      move_down(d, past_d);
    }
  });
}

}  // namespace

void launch_gated_conv(CudaElement element, const CausalConvOnDevice& in, const void* before, void* y,
                       void* stream) {
  if (in.rows == 0 || in.channels == 0) return;
  dispatch_taps(element, in.taps, [&](auto* typed, auto constant) {
    using T = std::remove_pointer_t<decltype(typed)>;
    constexpr int taps = constant, n = device::kElements<T, true>;
    const Shape shape = shape_of(in, n, kForwardTile);
    gated_conv_kernel<T, taps><<<grid_of(shape, n), kThreads, 0, static_cast<cudaStream_t>(stream)>>>(
        shape, in.bounds, static_cast<const T*>(in.x), in.weight, static_cast<const T*>(before),
        static_cast<T*>(y));
  });
  device::check_launch("gated_conv", cudaGetLastError());
}

void launch_gated_conv_backward(CudaElement element, const CausalConvOnDevice& in, const void* dy,
                                void* dprojected, void* y, void* stream) {
  if (in.rows == 0 || in.channels == 0) return;
  dispatch_taps(element, in.taps, [&](auto* typed, auto constant) {
    using T = std::remove_pointer_t<decltype(typed)>;
    constexpr int taps = constant, n = device::kElements<T, true>;
    const Shape shape = shape_of(in, n, kBackwardTile);
    gated_conv_backward_kernel<T, taps>
        <<<grid_of(shape, n), kThreads, 0, static_cast<cudaStream_t>(stream)>>>(
            shape, in.bounds, static_cast<const T*>(in.x), in.weight, static_cast<const T*>(dy),
            static_cast<T*>(dprojected), static_cast<T*>(y));
  });
  device::check_launch("gated_conv_backward", cudaGetLastError());
}

}  // namespace lorikeet::ops
