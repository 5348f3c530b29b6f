// Lanes of a warp share a token's head, an access or more each. A block takes kTokens tokens of some heads,
// so that the statistics of a head, which mostly lie token by token, are read and written in whole sectors.
#include "ops/attention/sinks_cuda.h"

#include <type_traits>

#include "ops/activation/activate.h"
#include "ops/cuda_vector.h"

namespace lorikeet::ops {
namespace {

using device::load_pack;
using device::store_pack;
using device::unpack;

constexpr int kThreads = 256, kTokens = 8, kWarp = 32;

template <typename T>
__global__ void __launch_bounds__(kThreads)
    apply_sinks_kernel(std::int64_t tokens, std::int64_t heads, std::int64_t head_dim, int lanes,
                       const float* sinks, StatisticsPlaces places, float* lse, T* out) {
  constexpr int n = device::kElements<T, true>;
  const int lane = static_cast<int>(threadIdx.x) % lanes, group = static_cast<int>(threadIdx.x) / lanes;
  const int of_block = kThreads / lanes / kTokens;  // heads
  const std::int64_t token = static_cast<std::int64_t>(blockIdx.x) * kTokens + group % kTokens;
  const std::int64_t head = static_cast<std::int64_t>(blockIdx.y) * of_block + group / kTokens;
  const bool is_there = token < tokens && head < heads;
  // The first lane alone reads what it writes, and passes the keys' share on.
  float share = 0.0F;
  if (is_there && lane == 0) {
    const std::int64_t sequence = token / places.length;
    float* const at = lse + sequence * places.sequence + head * places.head +
                      (token - sequence * places.length) * places.token;
    const float before = *at, sink = sinks[head], d = before - sink;
    share = device::sigmoid(d);
    *at = (d < 0.0F ? sink : before) + log1pf(expf(-fabsf(d)));
  }
  share = __shfl_sync(0xFFFFFFFFU, share, 0, lanes);
  if (!is_there) return;
  T* const row = out + (token * heads + head) * head_dim;
  for (std::int64_t i = std::int64_t{lane} * n; i < head_dim; i += std::int64_t{lanes} * n) {
    float values[n];
    unpack<T, n>(load_pack<n>(row + i), values);
#pragma unroll
    for (int j = 0; j < n; ++j) values[j] *= share;
    store_pack<n>(device::pack<T, n>(values), row + i);
  }
}

// Lanes for a head: a power of two, at most a warp.
int lanes_of(std::int64_t head_dim, int n) {
  int lanes = 1;
  while (lanes < kWarp && static_cast<std::int64_t>(lanes) * n < head_dim) lanes *= 2;
  return lanes;
}

}  // namespace

void launch_apply_sinks(CudaElement element, const SinksOnDevice& in, void* out, void* stream) {
  if (in.tokens == 0 || in.heads == 0 || in.head_dim == 0) return;
  device::dispatch(element, [&](auto* typed) {
    using T = std::remove_pointer_t<decltype(typed)>;
    const int lanes = lanes_of(in.head_dim, device::kElements<T, true>);
    const dim3 grid(device::blocks_of(in.tokens, kTokens),
                    device::blocks_of(in.heads, kThreads / lanes / kTokens, device::kMostBlocksY));
    apply_sinks_kernel<T><<<grid, kThreads, 0, static_cast<cudaStream_t>(stream)>>>(
        in.tokens, in.heads, in.head_dim, lanes, in.sinks, in.places, in.lse, static_cast<T*>(out));
  });
  device::check_launch("attention", cudaGetLastError());
}

}  // namespace lorikeet::ops
