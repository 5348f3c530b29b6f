// One thread an access of n elements, rows over gridDim.y in strides.
#include "ops/sigmoid_gate/sigmoid_gate_cuda.h"

#include <type_traits>

#include "ops/activation/activate.h"
#include "ops/cuda_vector.h"

namespace lorikeet::ops {
namespace {

using device::load_pack;
using device::store_pack;
using device::unpack;

constexpr int kThreads = 256;

template <typename T>
__global__ void __launch_bounds__(kThreads)
    sigmoid_gate_kernel(std::int64_t rows, std::int64_t width, const T* x, const T* gate,
                        std::int64_t gate_row, T* y) {
  constexpr int n = device::kElements<T, true>;
  const std::int64_t i = (static_cast<std::int64_t>(blockIdx.x) * kThreads + threadIdx.x) * n;
  if (i >= width) return;
  for (std::int64_t row = blockIdx.y; row < rows; row += gridDim.y) {
    float values[n], gates[n];
    unpack<T, n>(load_pack<n>(x + row * width + i), values);
    unpack<T, n>(load_pack<n>(gate + row * gate_row + i), gates);
#pragma unroll
    for (int j = 0; j < n; ++j) values[j] *= device::sigmoid(gates[j]);
    store_pack<n>(device::pack<T, n>(values), y + row * width + i);
  }
}

// dgate may be the gate: a thread writes what it alone reads, after it has read it.
template <typename T>
__global__ void __launch_bounds__(kThreads)
    sigmoid_gate_backward_kernel(std::int64_t rows, std::int64_t width, const T* x, const T* gate,
                                 std::int64_t gate_row, T* dy, T* dgate, std::int64_t dgate_row, T* again) {
  constexpr int n = device::kElements<T, true>;
  const std::int64_t i = (static_cast<std::int64_t>(blockIdx.x) * kThreads + threadIdx.x) * n;
  if (i >= width) return;
  for (std::int64_t row = blockIdx.y; row < rows; row += gridDim.y) {
    float values[n], gates[n], d[n];
    unpack<T, n>(load_pack<n>(x + row * width + i), values);
    unpack<T, n>(load_pack<n>(gate + row * gate_row + i), gates);
    unpack<T, n>(load_pack<n>(dy + row * width + i), d);
#pragma unroll
    for (int j = 0; j < n; ++j) {
      const float s = device::sigmoid(gates[j]);
      values[j] *= s;
      gates[j] = d[j] * values[j] * (1.0F - s);
      d[j] *= s;
    }
    store_pack<n>(device::pack<T, n>(d), dy + row * width + i);
    store_pack<n>(device::pack<T, n>(gates), dgate + row * dgate_row + i);
    if (again != nullptr) store_pack<n>(device::pack<T, n>(values), again + row * width + i);
  }
}

template <typename T>
dim3 grid_of(const SigmoidGateOnDevice& in) {
  return device::grid_of_rows(in.rows, in.width, std::int64_t{kThreads} * device::kElements<T, true>);
}

}  // namespace

void launch_sigmoid_gate(CudaElement element, const SigmoidGateOnDevice& in, void* y, void* stream) {
  if (in.rows == 0 || in.width == 0) return;
  device::dispatch(element, [&](auto* typed) {
    using T = std::remove_pointer_t<decltype(typed)>;
    sigmoid_gate_kernel<T><<<grid_of<T>(in), kThreads, 0, static_cast<cudaStream_t>(stream)>>>(
        in.rows, in.width, static_cast<const T*>(in.x), static_cast<const T*>(in.gate), in.gate_row,
        static_cast<T*>(y));
  });
  device::check_launch("sigmoid_gate", cudaGetLastError());
}

void launch_sigmoid_gate_backward(CudaElement element, const SigmoidGateOnDevice& in, void* dy, void* dgate,
                                  std::int64_t dgate_row, void* again, void* stream) {
  if (in.rows == 0 || in.width == 0) return;
  device::dispatch(element, [&](auto* typed) {
    using T = std::remove_pointer_t<decltype(typed)>;
    sigmoid_gate_backward_kernel<T><<<grid_of<T>(in), kThreads, 0, static_cast<cudaStream_t>(stream)>>>(
        in.rows, in.width, static_cast<const T*>(in.x), static_cast<const T*>(in.gate), in.gate_row,
        static_cast<T*>(dy), static_cast<T*>(dgate), dgate_row, static_cast<T*>(again));
  });
  device::check_launch("sigmoid_gate_backward", cudaGetLastError());
}

}  // namespace lorikeet::ops
