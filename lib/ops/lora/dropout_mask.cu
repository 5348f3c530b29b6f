#include "ops/lora/dropout_mask.h"

#include <type_traits>

#include "ops/cuda_vector.h"

namespace lorikeet::ops {
namespace {

constexpr int kThreads = 256, kEach = 4;

// One thread a block of four features, which is one Philox call; rows go over gridDim.y in strides.
// `aligned`: rows are whole blocks, which are read and written in one access.
template <typename T, bool aligned>
__global__ void __launch_bounds__(kThreads)
    dropout_kernel(const T* x, T* out, std::int64_t rows, std::int64_t features,
                   const std::int64_t* sample_ids, const std::int64_t* position_ids, DropoutKey key) {
  const std::int64_t block = static_cast<std::int64_t>(blockIdx.x) * kThreads + threadIdx.x;
  if (block * kEach >= features) return;
  for (std::int64_t row = blockIdx.y; row < rows; row += gridDim.y) {
    const DropoutWords words =
        dropout_block(key, sample_ids[row], position_ids[row], static_cast<std::uint32_t>(block));
    const std::int64_t at = row * features + block * kEach;
    if constexpr (aligned) {
      float values[kEach];
      device::unpack<T, kEach>(device::load_pack<kEach>(x + at), values);
#pragma unroll
      for (int i = 0; i < kEach; ++i) values[i] = words.v[i] >= key.threshold ? values[i] * key.scale : 0.0F;
      device::store_pack<kEach>(device::pack<T, kEach>(values), out + at);
    } else {
      for (int i = 0; i < kEach && block * kEach + i < features; ++i) {
        const float value = words.v[i] >= key.threshold ? device::widen(x[at + i]) * key.scale : 0.0F;
        device::narrow(value, out[at + i]);
      }
    }
  }
}

template <typename T, bool aligned>
void launch(const T* x, T* out, std::int64_t rows, std::int64_t features, const std::int64_t* sample_ids,
            const std::int64_t* position_ids, const DropoutKey& key, cudaStream_t stream) {
  const dim3 grid = device::grid_of_rows(rows, features, std::int64_t{kThreads} * kEach);
  dropout_kernel<T, aligned>
      <<<grid, kThreads, 0, stream>>>(x, out, rows, features, sample_ids, position_ids, key);
}

}  // namespace

void launch_dropout(CudaElement element, const void* x, void* out, std::int64_t rows, std::int64_t features,
                    const std::int64_t* sample_ids, const std::int64_t* position_ids, const DropoutKey& key,
                    void* stream) {
  if (rows == 0 || features == 0) return;
  device::dispatch(element, [&](auto* typed) {
    using T = std::remove_pointer_t<decltype(typed)>;
    const auto* from = static_cast<const T*>(x);
    auto* to = static_cast<T*>(out);
    const auto on = static_cast<cudaStream_t>(stream);
    if (features % kEach == 0 && device::is_aligned(x) && device::is_aligned(out)) {
      launch<T, true>(from, to, rows, features, sample_ids, position_ids, key, on);
    } else {
      launch<T, false>(from, to, rows, features, sample_ids, position_ids, key, on);
    }
  });
  device::check_launch("dropout", cudaGetLastError());
}

}  // namespace lorikeet::ops
