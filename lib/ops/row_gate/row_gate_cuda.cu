// One thread an access of n elements, rows over gridDim.y in strides.
#include "ops/row_gate/row_gate_cuda.h"

#include <type_traits>

#include "ops/activation/activate.h"
#include "ops/cuda_vector.h"

namespace lorikeet::ops {
namespace {

using device::load_pack;
using device::store_pack;
using device::unpack;

constexpr int kThreads = 256;

template <typename T, bool add>
__global__ void __launch_bounds__(kThreads)
    row_gate_kernel(std::int64_t rows, std::int64_t width, const T* x, const T* gate, T* y) {
  constexpr int n = device::kElements<T, true>;
  const std::int64_t i = (static_cast<std::int64_t>(blockIdx.x) * kThreads + threadIdx.x) * n;
  if (i >= width) return;
  for (std::int64_t row = blockIdx.y; row < rows; row += gridDim.y) {
    float values[n], sums[n] = {};
    unpack<T, n>(load_pack<n>(x + row * width + i), values);
    if constexpr (add) unpack<T, n>(load_pack<n>(y + row * width + i), sums);
    const float s = device::sigmoid(device::widen(gate[row]));
#pragma unroll
    for (int j = 0; j < n; ++j) values[j] = sums[j] + s * values[j];
    store_pack<n>(device::pack<T, n>(values), y + row * width + i);
  }
}

}  // namespace

void launch_row_gate(CudaElement element, const RowGateOnDevice& in, void* y, bool add, void* stream) {
  if (in.rows == 0 || in.width == 0) return;
  device::dispatch(element, [&](auto* typed) {
    using T = std::remove_pointer_t<decltype(typed)>;
    const dim3 grid =
        device::grid_of_rows(in.rows, in.width, std::int64_t{kThreads} * device::kElements<T, true>);
    const auto kernel = add ? row_gate_kernel<T, true> : row_gate_kernel<T, false>;
    kernel<<<grid, kThreads, 0, static_cast<cudaStream_t>(stream)>>>(
        in.rows, in.width, static_cast<const T*>(in.x), static_cast<const T*>(in.gate), static_cast<T*>(y));
  });
  device::check_launch("row_gate", cudaGetLastError());
}

}  // namespace lorikeet::ops
