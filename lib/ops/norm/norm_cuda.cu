// One pass over memory: a thread keeps its part of the row in registers between the row's sums and the
// result. What is beyond a block's reach in a wider row is read again.
#include "ops/norm/norm_cuda.h"

#include <type_traits>

#include "ops/norm/load_parameters.h"

namespace lorikeet::ops {
namespace {

using device::load_pack;
using device::load_parameters;
using device::Pack;
using device::scaled;
using device::store_pack;
using device::unpack;

constexpr int kWarp = 32, kMostThreads = 512, kRowsOfNarrowBlocks = 8;

// The sum over a row's threads, in each of them. Rows of one warp share nothing; those of more have a block
// alone.
__device__ __forceinline__ float row_sum(float value) {
#pragma unroll
  for (int lanes = kWarp / 2; lanes > 0; lanes /= 2) value += __shfl_xor_sync(0xFFFFFFFFU, value, lanes);
  if (blockDim.x == kWarp) return value;
  __shared__ float partial[kMostThreads / kWarp];
  if (threadIdx.x % kWarp == 0) partial[threadIdx.x / kWarp] = value;
  __syncthreads();
  float total = 0;
  for (unsigned warp = 0; warp < blockDim.x / kWarp; ++warp) total += partial[warp];
  __syncthreads();  // the next sum writes there
  return total;
}

// Where a row begins: tokens are `stride` elements apart, heads follow each other.
__device__ __forceinline__ std::int64_t row_offset(std::int64_t row, std::int64_t heads, std::int64_t width,
                                                   std::int64_t stride) {
  if (heads == 1) return row * stride;
  const std::int64_t token = row / heads;
  return token * stride + (row - token * heads) * width;
}

// A thread's part of a row: `parts` packs of n elements in registers, those behind them in memory. Only what
// lies within the row is visited.
template <int n, int parts>
struct RowPart {
  std::int64_t width, begin, step;

  __device__ RowPart(std::int64_t row_width)
      : width(row_width),
        begin(static_cast<std::int64_t>(threadIdx.x) * n),
        step(static_cast<std::int64_t>(blockDim.x) * n) {}

  // Calls held(i, k) for the element i at which the k-th pack begins, and beyond(i) for those behind.
  template <typename Held, typename Beyond>
  __device__ __forceinline__ void visit(const Held& held, const Beyond& beyond) const {
#pragma unroll
    for (int k = 0; k < parts; ++k) {
      const std::int64_t i = begin + k * step;
      if (i < width) held(i, k);
    }
    for (std::int64_t i = begin + parts * step; i < width; i += step) beyond(i);
  }
};

template <typename T, int n, int parts>
__global__ void __launch_bounds__(kMostThreads, 1)
    norm_forward_kernel(std::int64_t rows, std::int64_t heads, std::int64_t width, const T* x,
                        std::int64_t x_stride, const T* delta, T* sum, const void* weight, const void* bias,
                        bool is_fp32, float offset, float eps, T* y, std::int64_t y_stride, float* mean_out,
                        float* rstd_out) {
  const RowPart<n, parts> part(width);
  const auto count = static_cast<float>(width);
  const std::int64_t rows_at_once = static_cast<std::int64_t>(gridDim.x) * blockDim.y;
  for (std::int64_t row = static_cast<std::int64_t>(blockIdx.x) * blockDim.y + threadIdx.y; row < rows;
       row += rows_at_once) {
    const T* in = x + row_offset(row, heads, width, x_stride);
    const T* add = delta == nullptr ? nullptr : delta + row * width;
    T* added = delta == nullptr ? nullptr : sum + row * width;
    T* out = y + row_offset(row, heads, width, y_stride);
    Pack<T, n> kept[parts];
    float values[n];
    float total = 0;
    // The values that are normed: the rounded sum where there is a delta.
    const auto read = [&](std::int64_t i) {
      Pack<T, n> pack = load_pack<n>(in + i);
      if (add != nullptr) {
        float more[n];
        unpack<T, n>(pack, values);
        unpack<T, n>(load_pack<n>(add + i), more);
#pragma unroll
        for (int j = 0; j < n; ++j) values[j] += more[j];
        pack = device::pack<T, n>(values);
      }
      unpack<T, n>(pack, values);
#pragma unroll
      for (int j = 0; j < n; ++j) total += values[j];
      return pack;
    };
    part.visit([&](std::int64_t i, int k) { kept[k] = read(i); },
               [&](std::int64_t i) {
                 const Pack<T, n> pack = read(i);
                 if (add != nullptr) store_pack<n>(pack, added + i);
               });
    // Stored after all loads: the compiler moves no load above a store that may alias.
    if (add != nullptr)
      part.visit([&](std::int64_t i, int k) { store_pack<n>(kept[k], added + i); }, [](std::int64_t) {});
    const T* again = add == nullptr ? in : added;
    const float mean = mean_out == nullptr ? 0.0F : row_sum(total) / count;

    float squares = 0;
    const auto square = [&](const Pack<T, n>& pack) {
      unpack<T, n>(pack, values);
#pragma unroll
      for (int j = 0; j < n; ++j) squares += (values[j] - mean) * (values[j] - mean);
    };
    part.visit([&](std::int64_t, int k) { square(kept[k]); },
               [&](std::int64_t i) { square(load_pack<n>(again + i)); });
    const float rstd = 1.0F / sqrtf(row_sum(squares) / count + eps);
    if (threadIdx.x == 0) {
      rstd_out[row] = rstd;
      if (mean_out != nullptr) mean_out[row] = mean;
    }

    const auto write = [&](std::int64_t i, const Pack<T, n>& pack) {
      float w[n];
      unpack<T, n>(pack, values);
      load_parameters<T, n>(weight, is_fp32, i, offset, w);
#pragma unroll
      for (int j = 0; j < n; ++j) values[j] -= mean;
      store_pack<n>(scaled<T>(values, w, rstd, bias, is_fp32, i), out + i);
    };
    part.visit([&](std::int64_t i, int k) { write(i, kept[k]); },
               [&](std::int64_t i) { write(i, load_pack<n>(again + i)); });
  }
}

// With g = w dy and c = x - mean:  dx = rstd (g - mean(g)) - c rstd^3 mean(g c) + extra, without mean(g) for
// RMS. dx may be dy: a thread writes what it alone reads, after it has read it. `again` gets forward's y.
template <typename T, int n, int parts>
__global__ void __launch_bounds__(kMostThreads, parts == 1 ? 2 : 1)
    norm_backward_kernel(std::int64_t rows, std::int64_t heads, std::int64_t width, const T* dy,
                         std::int64_t dy_stride, const T* extra, std::int64_t extra_stride, const T* x,
                         std::int64_t x_stride, const void* weight, const void* bias, bool is_fp32,
                         float offset, const float* means, const float* rstds, T* dx, std::int64_t dx_stride,
                         T* again) {
  const RowPart<n, parts> part(width);
  const auto count = static_cast<float>(width);
  const std::int64_t rows_at_once = static_cast<std::int64_t>(gridDim.x) * blockDim.y;
  for (std::int64_t row = static_cast<std::int64_t>(blockIdx.x) * blockDim.y + threadIdx.y; row < rows;
       row += rows_at_once) {
    const T* upstream = dy + row_offset(row, heads, width, dy_stride);
    const T* in = x + row_offset(row, heads, width, x_stride);
    const T* past = extra == nullptr ? nullptr : extra + row_offset(row, heads, width, extra_stride);
    T* out = dx + row_offset(row, heads, width, dx_stride);
    T* normed = again == nullptr ? nullptr : again + row * width;
    const float rstd = rstds[row], mean = means == nullptr ? 0.0F : means[row];
    Pack<T, n> kept_dy[parts], kept_x[parts], kept_past[parts];
    float g[n], c[n], w[n];
    float sum_g = 0, sum_gc = 0;
    const auto unpack_both = [&](std::int64_t i, const Pack<T, n>& dy_pack, const Pack<T, n>& x_pack) {
      unpack<T, n>(dy_pack, g);
      unpack<T, n>(x_pack, c);
      load_parameters<T, n>(weight, is_fp32, i, offset, w);
#pragma unroll
      for (int j = 0; j < n; ++j) {
        g[j] *= w[j];
        c[j] -= mean;
      }
    };
    const auto add = [&](std::int64_t i, const Pack<T, n>& dy_pack, const Pack<T, n>& x_pack) {
      unpack_both(i, dy_pack, x_pack);
#pragma unroll
      for (int j = 0; j < n; ++j) {
        sum_g += g[j];
        sum_gc += g[j] * c[j];
      }
    };
    part.visit(
        [&](std::int64_t i, int k) {
          kept_dy[k] = load_pack<n>(upstream + i);
          kept_x[k] = load_pack<n>(in + i);
          // Here, so that it is on its way while the row is summed.
          if (past != nullptr) kept_past[k] = load_pack<n>(past + i);
          add(i, kept_dy[k], kept_x[k]);
        },
        [&](std::int64_t i) { add(i, load_pack<n>(upstream + i), load_pack<n>(in + i)); });
    if (normed != nullptr) {
      const auto write_again = [&](std::int64_t i, const Pack<T, n>& x_pack) {
        unpack<T, n>(x_pack, c);
        load_parameters<T, n>(weight, is_fp32, i, offset, w);
#pragma unroll
        for (int j = 0; j < n; ++j) c[j] -= mean;
        store_pack<n>(scaled<T>(c, w, rstd, bias, is_fp32, i), normed + i);
      };
      part.visit([&](std::int64_t i, int k) { write_again(i, kept_x[k]); },
                 [&](std::int64_t i) { write_again(i, load_pack<n>(in + i)); });
    }
    const float mean_g = means == nullptr ? 0.0F : row_sum(sum_g) / count;
    const float along = rstd * rstd * rstd * (row_sum(sum_gc) / count);

    const auto write = [&](std::int64_t i, const Pack<T, n>& dy_pack, const Pack<T, n>& x_pack,
                           const auto& past_pack) {
      unpack_both(i, dy_pack, x_pack);
#pragma unroll
      for (int j = 0; j < n; ++j) g[j] = rstd * (g[j] - mean_g) - along * c[j];
      if (past != nullptr) {
        unpack<T, n>(past_pack(), c);
#pragma unroll
        for (int j = 0; j < n; ++j) g[j] += c[j];
      }
      store_pack<n>(device::pack<T, n>(g), out + i);
    };
    part.visit([&](std::int64_t i, int k) { write(i, kept_dy[k], kept_x[k], [&] { return kept_past[k]; }); },
               [&](std::int64_t i) {
                 write(i, load_pack<n>(upstream + i), load_pack<n>(in + i),
                       [&] { return load_pack<n>(past + i); });
               });
  }
}

struct Shape {
  unsigned grid;
  dim3 block;
};

// Threads for `accesses` in a row of which each keeps `parts`, in whole warps; narrow rows go several to a
// block.
Shape shape_of(std::int64_t rows, std::int64_t accesses, int parts) {
  const std::int64_t of_warp = std::int64_t{kWarp} * parts;
  const std::int64_t warps = (accesses + of_warp - 1) / of_warp, most = kMostThreads / kWarp;
  const dim3 block(static_cast<unsigned>((warps < most ? warps : most) * kWarp),
                   warps == 1 ? kRowsOfNarrowBlocks : 1);
  return {device::blocks_of(rows, block.y), block};
}

template <int value>
using Constant = std::integral_constant<int, value>;

// Accesses in a row beyond which a thread keeps two of them instead of one, and beyond which four. More in
// one thread are more loads at once, and fewer threads that wait for each other at a row's sums; of narrow
// rows there are enough at once anyway. Measured on an H200 (benchmarks/results/card.md).
constexpr int kForwardTwo = 0, kForwardFour = 2 * kMostThreads, kBackwardTwo = 384, kBackwardFour = 384;

// Calls f with the elements of an access and the accesses that a thread keeps, as constants.
template <typename T, int two, int four, typename F>
void with_reach(bool aligned, std::int64_t width, const F& f) {
  constexpr int kWide = device::kElements<T, true>;
  const std::int64_t accesses = width / kWide;
  if (!aligned) return f(Constant<1>(), Constant<8>());
  if constexpr (two > 0) {
    if (accesses <= two) return f(Constant<kWide>(), Constant<1>());
  }
  if constexpr (four > two) {
    if (accesses <= four) return f(Constant<kWide>(), Constant<2>());
  }
  f(Constant<kWide>(), Constant<4>());
}

template <typename T>
bool is_aligned_row(const void* pointer, std::int64_t stride) {
  return device::is_aligned(pointer) && stride % device::kElements<T, true> == 0;
}

}  // namespace

void launch_norm_forward(CudaElement element, const NormRows& rows, const NormForwardOnDevice& in,
                         void* stream) {
  const std::int64_t count = rows.tokens * rows.heads;
  if (count == 0 || rows.width == 0) return;
  device::dispatch(element, [&](auto* typed) {
    using T = std::remove_pointer_t<decltype(typed)>;
    const bool aligned = is_aligned_row<T>(in.x, in.x_stride) && is_aligned_row<T>(in.y, in.y_stride) &&
                         device::is_aligned(in.delta) && device::is_aligned(in.sum) &&
                         rows.width % device::kElements<T, true> == 0 &&
                         device::is_aligned(in.scale.weight) && device::is_aligned(in.scale.bias);
    with_reach<T, kForwardTwo, kForwardFour>(aligned, rows.width, [&](auto of_access, auto kept) {
      constexpr int n = of_access, parts = kept;
      const Shape shape = shape_of(count, (rows.width + n - 1) / n, parts);
      norm_forward_kernel<T, n, parts><<<shape.grid, shape.block, 0, static_cast<cudaStream_t>(stream)>>>(
          count, rows.heads, rows.width, static_cast<const T*>(in.x), in.x_stride,
          static_cast<const T*>(in.delta), static_cast<T*>(in.sum), in.scale.weight, in.scale.bias,
          in.scale.is_fp32, in.scale.offset, in.eps, static_cast<T*>(in.y), in.y_stride, in.mean, in.rstd);
    });
  });
  device::check_launch("norm", cudaGetLastError());
}

void launch_norm_backward(CudaElement element, const NormRows& rows, const NormBackwardOnDevice& in,
                          void* stream) {
  const std::int64_t count = rows.tokens * rows.heads;
  if (count == 0 || rows.width == 0) return;
  device::dispatch(element, [&](auto* typed) {
    using T = std::remove_pointer_t<decltype(typed)>;
    const bool aligned =
        is_aligned_row<T>(in.dy, in.dy_stride) && is_aligned_row<T>(in.x, in.x_stride) &&
        is_aligned_row<T>(in.dx, in.dx_stride) && is_aligned_row<T>(in.extra, in.extra_stride) &&
        rows.width % device::kElements<T, true> == 0 && device::is_aligned(in.scale.weight) &&
        device::is_aligned(in.scale.bias) && device::is_aligned(in.again);
    with_reach<T, kBackwardTwo, kBackwardFour>(aligned, rows.width, [&](auto of_access, auto kept) {
      constexpr int n = of_access, parts = kept;
      const Shape shape = shape_of(count, (rows.width + n - 1) / n, parts);
      norm_backward_kernel<T, n, parts><<<shape.grid, shape.block, 0, static_cast<cudaStream_t>(stream)>>>(
          count, rows.heads, rows.width, static_cast<const T*>(in.dy), in.dy_stride,
          static_cast<const T*>(in.extra), in.extra_stride, static_cast<const T*>(in.x), in.x_stride,
          in.scale.weight, in.scale.bias, in.scale.is_fp32, in.scale.offset, in.mean, in.rstd,
          static_cast<T*>(in.dx), in.dx_stride, static_cast<T*>(in.again));
    });
  });
  device::check_launch("norm", cudaGetLastError());
}

}  // namespace lorikeet::ops
