// One thread an item of a row, rows over gridDim.y in strides. An item is an access of n elements of one
// head, or two accesses of it that are rotated together.
#include "ops/latent_heads/latent_heads_cuda.h"

#include <type_traits>

#include "ops/cuda_heads.h"
#include "ops/rotary/rotate_pairs.h"

namespace lorikeet::ops {
namespace {

using device::load_pack;
using device::rotate_accesses;
using device::store_pack;
using device::unpack;

constexpr int kThreads = 128;

// Sizes that kernels read; a LatentLayout's functions are the host's.
struct Sizes {
  std::int64_t heads, plain, half, value, head;  // half: of the rotated dimensions; head: filled up

  explicit Sizes(const LatentLayout& layout)
      : heads(layout.heads),
        plain(layout.plain_dim),
        half(layout.rotary_dim / 2),
        value(layout.value_dim),
        head(layout.head_dim()) {}
  __host__ __device__ std::int64_t key() const { return plain + 2 * half; }
  __host__ __device__ std::int64_t key_value() const { return plain + value; }
};

// Two accesses whose elements are rotated with each other: the first of them, and how far the second lies
// behind it.
template <int n, bool interleaved>
struct Pairs {
  std::int64_t low, apart;

  // The pairs from the i-th of `half` on.
  __device__ Pairs(std::int64_t i, std::int64_t half)
      : low(interleaved ? 2 * i : i), apart(interleaved ? n : half) {}
};

template <bool interleaved, int n, typename T>
__device__ __forceinline__ void rotate_from(const T* from, std::int64_t apart, const float* cos,
                                            const float* sin, float sign, T* to) {
  float a[n], b[n];
  unpack<T, n>(load_pack<n>(from), a);
  unpack<T, n>(load_pack<n>(from + apart), b);
  rotate_accesses<interleaved>(a, b, cos, sin, sign);
  store_pack<n>(device::pack<T, n>(a), to);
  store_pack<n>(device::pack<T, n>(b), to + apart);
}

// Of each head of queries, then of keys: accesses that are copied, pairs of them that are rotated, and
// accesses of zeros; then of values copies and zeros.
template <typename T, int n, bool interleaved>
__global__ void __launch_bounds__(kThreads)
    latent_heads_kernel(const T* q, std::int64_t q_row, const T* kv, std::int64_t kv_row, const T* shared_key,
                        std::int64_t shared_row, const float* cos, const float* sin, std::int64_t rows,
                        Sizes sizes, T* packed) {
  const std::int64_t of_key = (sizes.head - sizes.half) / n, of_value = sizes.head / n;
  const std::int64_t keys = sizes.heads * of_key, all = sizes.heads * sizes.head;
  std::int64_t at = static_cast<std::int64_t>(blockIdx.x) * kThreads + threadIdx.x;
  if (at >= 2 * keys + sizes.heads * of_value) return;
  const bool is_query = at < keys, is_value = at >= 2 * keys;
  at -= is_query ? 0 : is_value ? 2 * keys : keys;
  const std::int64_t each = is_value ? of_value : of_key, head = at / each, column = (at - head * each) * n;
  const bool rotates = !is_value && column >= sizes.plain && column < sizes.plain + sizes.half;
  const bool copies = column < (is_value ? sizes.value : sizes.plain);
  const std::int64_t pair = column - sizes.plain;
  const Pairs<n, interleaved> pairs(pair, sizes.half);
  const T* from = is_query ? q + head * sizes.key() : kv + head * sizes.key_value();
  std::int64_t from_row = is_query ? q_row : kv_row, to_column = column;
  if (is_value) {
    from += sizes.plain + column;
  } else if (!rotates) {
    from += column;
    if (!copies) to_column += sizes.half;
  } else {
    to_column = sizes.plain + pairs.low;
    if (is_query) {
      from += to_column;
    } else {
      from = shared_key + pairs.low;
      from_row = shared_row;
    }
  }
  T* const to = packed + (is_query ? 0 : is_value ? 2 * all : all) + head * sizes.head + to_column;
  for (std::int64_t row = blockIdx.y; row < rows; row += gridDim.y) {
    T* const written = to + row * 3 * all;
    if (rotates) {
      rotate_from<interleaved, n>(from + row * from_row, pairs.apart, cos + row * sizes.half + pair,
                                  sin + row * sizes.half + pair, 1.0F, written);
    } else if (copies) {
      store_pack<n>(load_pack<n>(from + row * from_row), written);
    } else {
      store_pack<n>(device::Pack<T, n>{}, written);
    }
  }
}

// First the shared key's pairs, which have most to read: the sums over all heads. Then of each head of
// queries copies and pairs, and of keys and values copies.
template <typename T, int n, bool interleaved>
__global__ void __launch_bounds__(kThreads)
    latent_heads_backward_kernel(const T* dq, std::int64_t dq_row, const T* dk, std::int64_t dk_row,
                                 const T* dv, std::int64_t dv_row, const float* cos, const float* sin,
                                 std::int64_t rows, Sizes sizes, T* q, std::int64_t q_row, T* kv,
                                 std::int64_t kv_row, T* shared_key, std::int64_t shared_row) {
  const std::int64_t shared = sizes.half / n, of_query = (sizes.plain + sizes.half) / n;
  const std::int64_t queries = sizes.heads * of_query, of_key_value = sizes.key_value() / n;
  std::int64_t at = static_cast<std::int64_t>(blockIdx.x) * kThreads + threadIdx.x;
  if (at < shared) {
    const std::int64_t pair = at * n;
    const Pairs<n, interleaved> pairs(pair, sizes.half);
    for (std::int64_t row = blockIdx.y; row < rows; row += gridDim.y) {
      const T* const from = dk + row * dk_row + sizes.plain + pairs.low;
      float low[n] = {}, high[n] = {};
      for (std::int64_t head = 0; head < sizes.heads; ++head) {
        float a[n], b[n];
        unpack<T, n>(load_pack<n>(from + head * sizes.head), a);
        unpack<T, n>(load_pack<n>(from + head * sizes.head + pairs.apart), b);
#pragma unroll
        for (int j = 0; j < n; ++j) low[j] += a[j], high[j] += b[j];
      }
      rotate_accesses<interleaved>(low, high, cos + row * sizes.half + pair, sin + row * sizes.half + pair,
                                   -1.0F);
      T* const to = shared_key + row * shared_row + pairs.low;
      store_pack<n>(device::pack<T, n>(low), to);
      store_pack<n>(device::pack<T, n>(high), to + pairs.apart);
    }
    return;
  }
  at -= shared;
  if (at < queries) {
    const std::int64_t head = at / of_query, column = (at - head * of_query) * n;
    const bool rotates = column >= sizes.plain;
    const std::int64_t pair = column - sizes.plain;
    const Pairs<n, interleaved> pairs(pair, sizes.half);
    const std::int64_t begin = rotates ? sizes.plain + pairs.low : column;
    for (std::int64_t row = blockIdx.y; row < rows; row += gridDim.y) {
      const T* const from = dq + row * dq_row + head * sizes.head + begin;
      T* const to = q + row * q_row + head * sizes.key() + begin;
      if (rotates) {
        rotate_from<interleaved, n>(from, pairs.apart, cos + row * sizes.half + pair,
                                    sin + row * sizes.half + pair, -1.0F, to);
      } else {
        store_pack<n>(load_pack<n>(from), to);
      }
    }
    return;
  }
  at -= queries;
  if (at >= sizes.heads * of_key_value) return;
  const std::int64_t head = at / of_key_value, column = (at - head * of_key_value) * n;
  const bool is_key = column < sizes.plain;
  const T* const from = (is_key ? dk + column : dv + column - sizes.plain) + head * sizes.head;
  const std::int64_t from_row = is_key ? dk_row : dv_row;
  T* const to = kv + head * sizes.key_value() + column;
  for (std::int64_t row = blockIdx.y; row < rows; row += gridDim.y)
    store_pack<n>(load_pack<n>(from + row * from_row), to + row * kv_row);
}

// Whether every part of a head has whole accesses of n elements, and the rotated one whole pairs of them.
bool has_accesses(const Sizes& sizes, std::int64_t n) {
  return sizes.plain % n == 0 && sizes.half % n == 0 && sizes.value % n == 0 && sizes.head % n == 0;
}

template <typename Pointer>
bool are_aligned(const LatentPartsOnDevice<Pointer>& parts, std::int64_t n) {
  return device::is_aligned(parts.q) && device::is_aligned(parts.kv) &&
         device::is_aligned(parts.shared_key) && parts.q_row % n == 0 && parts.kv_row % n == 0 &&
         parts.shared_row % n == 0;
}

template <typename T, int n>
void launch(const LatentPartsOnDevice<const void*>& parts, const float* cos, const float* sin,
            std::int64_t rows, const LatentLayout& layout, void* packed, cudaStream_t stream) {
  const Sizes sizes(layout);
  const std::int64_t items = sizes.heads * (2 * (sizes.head - sizes.half) + sizes.head) / n;
  const auto kernel = layout.interleaved ? latent_heads_kernel<T, n, true> : latent_heads_kernel<T, n, false>;
  kernel<<<device::grid_of_rows(rows, items, kThreads), kThreads, 0, stream>>>(
      static_cast<const T*>(parts.q), parts.q_row, static_cast<const T*>(parts.kv), parts.kv_row,
      static_cast<const T*>(parts.shared_key), parts.shared_row, cos, sin, rows, sizes,
      static_cast<T*>(packed));
}

template <typename T, int n>
void launch_backward(const HeadsOnDevice& gradients, const float* cos, const float* sin, std::int64_t rows,
                     const LatentLayout& layout, const LatentPartsOnDevice<void*>& out, cudaStream_t stream) {
  const Sizes sizes(layout);
  const std::int64_t items = (sizes.half + sizes.heads * (sizes.plain + sizes.half + sizes.key_value())) / n;
  const auto kernel = layout.interleaved ? latent_heads_backward_kernel<T, n, true>
                                         : latent_heads_backward_kernel<T, n, false>;
  kernel<<<device::grid_of_rows(rows, items, kThreads), kThreads, 0, stream>>>(
      static_cast<const T*>(gradients.q), gradients.q_row, static_cast<const T*>(gradients.k),
      gradients.k_row, static_cast<const T*>(gradients.v), gradients.v_row, cos, sin, rows, sizes,
      static_cast<T*>(out.q), out.q_row, static_cast<T*>(out.kv), out.kv_row, static_cast<T*>(out.shared_key),
      out.shared_row);
}

}  // namespace

void launch_latent_heads(CudaElement element, const LatentPartsOnDevice<const void*>& parts, const float* cos,
                         const float* sin, std::int64_t rows, const LatentLayout& layout, void* packed,
                         void* stream) {
  if (rows == 0) return;
  const auto on = static_cast<cudaStream_t>(stream);
  device::dispatch(element, [&](auto* typed) {
    using T = std::remove_pointer_t<decltype(typed)>;
    constexpr int kWide = device::kElements<T, true>;
    const bool aligned = are_aligned(parts, kWide) && device::is_aligned(packed) && device::is_aligned(cos) &&
                         device::is_aligned(sin) && has_accesses(Sizes(layout), kWide);
    if (aligned) {
      launch<T, kWide>(parts, cos, sin, rows, layout, packed, on);
    } else {
      launch<T, 1>(parts, cos, sin, rows, layout, packed, on);
    }
  });
  device::check_launch("latent_heads", cudaGetLastError());
}

void launch_latent_heads_backward(CudaElement element, const HeadsOnDevice& gradients, const float* cos,
                                  const float* sin, std::int64_t rows, const LatentLayout& layout,
                                  const LatentPartsOnDevice<void*>& out, void* stream) {
  if (rows == 0) return;
  const auto on = static_cast<cudaStream_t>(stream);
  device::dispatch(element, [&](auto* typed) {
    using T = std::remove_pointer_t<decltype(typed)>;
    constexpr int kWide = device::kElements<T, true>;
    const bool aligned = device::are_aligned(gradients, kWide) && are_aligned(out, kWide) &&
                         device::is_aligned(cos) && device::is_aligned(sin) &&
                         has_accesses(Sizes(layout), kWide);
    if (aligned) {
      launch_backward<T, kWide>(gradients, cos, sin, rows, layout, out, on);
    } else {
      launch_backward<T, 1>(gradients, cos, sin, rows, layout, out, on);
    }
  });
  device::check_launch("latent_heads_backward", cudaGetLastError());
}

}  // namespace lorikeet::ops
