#include "ops/activation/activation_cuda.h"

#include <type_traits>

#include "ops/activation/activate.h"
#include "ops/cuda_vector.h"

namespace lorikeet::ops {
namespace {

using device::activate;
using device::Activated;
using device::GatedActivated;
using device::load_pack;
using device::store_pack;
using device::unpack;

constexpr int kThreads = 256;

// One thread an access of n elements, rows over gridDim.y in strides. Gated rows are [gate | up]; of plain
// ones there is one, of all elements.
template <typename T, int n, bool is_gated>
__global__ void __launch_bounds__(kThreads)
    forward_kernel(Activation kind, const T* in, std::int64_t rows, std::int64_t width, T* out) {
  const std::int64_t i = (static_cast<std::int64_t>(blockIdx.x) * kThreads + threadIdx.x) * n;
  if (i >= width) return;
  for (std::int64_t row = blockIdx.y; row < rows; row += gridDim.y) {
    const T* gate = in + row * (is_gated ? 2 * width : width) + i;
    float x[n], up[n];
    unpack<T, n>(load_pack<n>(gate), x);
    if constexpr (is_gated) unpack<T, n>(load_pack<n>(gate + width), up);
#pragma unroll
    for (int j = 0; j < n; ++j)
      x[j] = is_gated ? device::gated(kind, x[j], up[j]) : activate(kind, x[j]).value;
    store_pack<n>(device::pack<T, n>(x), out + row * width + i);
  }
}

// A thread writes over what it alone has read. `again` gets forward's result, or is nullptr.
template <typename T, int n, bool is_gated>
__global__ void __launch_bounds__(kThreads)
    backward_kernel(Activation kind, const T* dy, std::int64_t rows, std::int64_t width, T* in, T* again) {
  const std::int64_t i = (static_cast<std::int64_t>(blockIdx.x) * kThreads + threadIdx.x) * n;
  if (i >= width) return;
  for (std::int64_t row = blockIdx.y; row < rows; row += gridDim.y) {
    T* gate = in + row * (is_gated ? 2 * width : width) + i;
    float d[n], x[n], up[n], y[n];
    unpack<T, n>(load_pack<n>(dy + row * width + i), d);
    unpack<T, n>(load_pack<n>(gate), x);
    if constexpr (is_gated) unpack<T, n>(load_pack<n>(gate + width), up);
#pragma unroll
    for (int j = 0; j < n; ++j) {
      if constexpr (is_gated) {
        const GatedActivated activated = device::gated_backward(kind, x[j], up[j], d[j]);
        y[j] = activated.value, x[j] = activated.gate, d[j] = activated.up;
      } else {
        const Activated activated = activate(kind, x[j]);
        y[j] = activated.value, x[j] = d[j] * activated.slope;
      }
    }
    store_pack<n>(device::pack<T, n>(x), gate);
    if constexpr (is_gated) store_pack<n>(device::pack<T, n>(d), gate + width);
    if (again != nullptr) store_pack<n>(device::pack<T, n>(y), again + row * width + i);
  }
}

template <typename T, int n, bool is_gated>
void launch(bool forward, Activation kind, const T* in, std::int64_t rows, std::int64_t width, T* out,
            T* again, cudaStream_t stream) {
  const dim3 grid = device::grid_of_rows(rows, width, std::int64_t{kThreads} * n);
  if (forward) {
    forward_kernel<T, n, is_gated><<<grid, kThreads, 0, stream>>>(kind, in, rows, width, out);
  } else {
    backward_kernel<T, n, is_gated><<<grid, kThreads, 0, stream>>>(kind, in, rows, width, out, again);
  }
}

// 16-byte accesses where rows allow them. Plain elements are one row; those behind its last whole access go
// alone.
template <bool is_gated>
void launch(bool forward, CudaElement element, Activation kind, const void* in, std::int64_t rows,
            std::int64_t width, void* out, void* again, void* stream) {
  if (rows == 0 || width == 0) return;
  const auto on = static_cast<cudaStream_t>(stream);
  device::dispatch(element, [&](auto* typed) {
    using T = std::remove_pointer_t<decltype(typed)>;
    constexpr int kWide = device::kElements<T, true>;
    const T* from = static_cast<const T*>(in);
    T* to = static_cast<T*>(out);
    T* once_more = static_cast<T*>(again);
    std::int64_t done = 0;
    if (device::is_aligned(in) && device::is_aligned(out) && device::is_aligned(again) &&
        (!is_gated || width % kWide == 0)) {
      done = width / kWide * kWide;
      if (done > 0) launch<T, kWide, is_gated>(forward, kind, from, rows, done, to, once_more, on);
    }
    if (done < width) {
      launch<T, 1, is_gated>(forward, kind, from + done, rows, width - done, to + done,
                             once_more == nullptr ? nullptr : once_more + done, on);
    }
  });
  device::check_launch("activation", cudaGetLastError());
}

}  // namespace

void launch_gated_forward(CudaElement element, Activation activation, const void* gate_up, std::int64_t rows,
                          std::int64_t width, void* out, void* stream) {
  launch<true>(/*forward=*/true, element, activation, gate_up, rows, width, out, nullptr, stream);
}

void launch_gated_backward(CudaElement element, Activation activation, const void* dy, std::int64_t rows,
                           std::int64_t width, void* gate_up, void* again, void* stream) {
  launch<true>(/*forward=*/false, element, activation, dy, rows, width, gate_up, again, stream);
}

void launch_activation_forward(CudaElement element, Activation activation, const void* x, std::int64_t count,
                               void* out, void* stream) {
  launch<false>(/*forward=*/true, element, activation, x, 1, count, out, nullptr, stream);
}

void launch_activation_backward(CudaElement element, Activation activation, const void* dy,
                                std::int64_t count, void* x, void* again, void* stream) {
  launch<false>(/*forward=*/false, element, activation, dy, 1, count, x, again, stream);
}

}  // namespace lorikeet::ops
