// One pass over memory: the threads of a group keep their part of it in registers between the group's sums
// and the result. What is beyond a block's reach in a wider group is read again.
#include "ops/norm_of_gated/norm_of_gated_cuda.h"

#include <type_traits>

#include "ops/activation/activate.h"
#include "ops/norm/load_parameters.h"

namespace lorikeet::ops {
namespace {

using device::load_pack;
using device::load_parameters;
using device::Pack;
using device::sigmoid;
using device::store_pack;
using device::unpack;

constexpr int kWarp = 32, kMostThreads = 512, kGroupsOfNarrowBlocks = 8;
// Accesses that a thread keeps: a block reaches over 16 KiB of a group's row. Four of backward's don't fit in
// registers, and with as many both ways the result that backward makes again is forward's to the bit.
constexpr int kParts = 2;

// Sums over a group's threads, in each of them. Groups of one warp share nothing; those of more have a block
// alone.
template <int count>
__device__ __forceinline__ void group_sums(float (&values)[count]) {
#pragma unroll
  for (int k = 0; k < count; ++k) {
#pragma unroll
    for (int lanes = kWarp / 2; lanes > 0; lanes /= 2)
      values[k] += __shfl_xor_sync(0xFFFFFFFFU, values[k], lanes);
  }
  if (blockDim.x == kWarp) return;
  __shared__ float partial[count][kMostThreads / kWarp];
  if (threadIdx.x % kWarp == 0) {
#pragma unroll
    for (int k = 0; k < count; ++k) partial[k][threadIdx.x / kWarp] = values[k];
  }
  __syncthreads();
#pragma unroll
  for (int k = 0; k < count; ++k) {
    values[k] = 0;
    for (unsigned warp = 0; warp < blockDim.x / kWarp; ++warp) values[k] += partial[k][warp];
  }
  __syncthreads();  // the next group's sums are written there
}

// All but the pointers, which are arguments of their own.
struct Groups {
  std::int64_t rows, groups, width, z_row;
  bool is_fp32;
  float eps;

  // Calls f(begin, row, column) for this thread's groups: where one begins in a dense matrix, and its row and
  // column. As often in every thread that sums up with it.
  template <typename F>
  __device__ __forceinline__ void visit(const F& f) const {
    const std::int64_t all = rows * groups, at_once = static_cast<std::int64_t>(gridDim.x) * blockDim.y;
    for (std::int64_t at = static_cast<std::int64_t>(blockIdx.x) * blockDim.y + threadIdx.y; at < all;
         at += at_once) {
      const std::int64_t row = at / groups;
      f(at * width, row, (at - row * groups) * width);
    }
  }

  __device__ __forceinline__ float reciprocal_deviation(float squares) const {
    return 1.0F / sqrtf(squares / static_cast<float>(width) + eps);
  }
};

// A thread's part of a group: kParts accesses of n elements in registers, those behind them in memory. Only
// what lies within the group is visited.
template <int n>
struct GroupPart {
  std::int64_t width, begin, step;

  __device__ GroupPart(std::int64_t group_width)
      : width(group_width),
        begin(static_cast<std::int64_t>(threadIdx.x) * n),
        step(static_cast<std::int64_t>(blockDim.x) * n) {}

  // Calls held(i, k) for the element i at which the k-th access begins, and beyond(i) for those behind.
  template <typename Held, typename Beyond>
  __device__ __forceinline__ void visit(const Held& held, const Beyond& beyond) const {
#pragma unroll
    for (int k = 0; k < kParts; ++k) {
      const std::int64_t i = begin + k * step;
      if (i < width) held(i, k);
    }
    for (std::int64_t i = begin + kParts * step; i < width; i += step) beyond(i);
  }
};

// x silu(z).
template <typename T, int n>
__device__ __forceinline__ void apply_gate(const Pack<T, n>& x, const Pack<T, n>& z, float (&out)[n]) {
  float gate[n];
  unpack<T, n>(x, out);
  unpack<T, n>(z, gate);
#pragma unroll
  for (int j = 0; j < n; ++j) out[j] *= gate[j] * sigmoid(gate[j]);
}

template <typename T>
__global__ void __launch_bounds__(kMostThreads)
    norm_of_gated_kernel(Groups in, const T* x, const T* z, const void* weight, T* y) {
  constexpr int n = device::kElements<T, true>;
  const GroupPart<n> part(in.width);
  in.visit([&](std::int64_t begin, std::int64_t row, std::int64_t column) {
    const T* const values = x + begin;
    const T* const gates = z + row * in.z_row + column;
    float gated[kParts][n], rest[n];
    float squares[1] = {0};
    const auto read = [&](std::int64_t i, float(&out)[n]) {
      apply_gate<T, n>(load_pack<n>(values + i), load_pack<n>(gates + i), out);
    };
    const auto square = [&](const float(&of)[n]) {
#pragma unroll
      for (int j = 0; j < n; ++j) squares[0] += of[j] * of[j];
    };
    part.visit(
        [&](std::int64_t i, int k) {
          read(i, gated[k]);
          square(gated[k]);
        },
        [&](std::int64_t i) {
          read(i, rest);
          square(rest);
        });
    group_sums(squares);
    const float rstd = in.reciprocal_deviation(squares[0]);
    const auto write = [&](std::int64_t i, const float(&of)[n]) {
      float w[n];
      load_parameters<T, n>(weight, in.is_fp32, column + i, 0.0F, w);
      store_pack<n>(device::scaled<T>(of, w, rstd, nullptr, in.is_fp32, i), y + begin + i);
    };
    part.visit([&](std::int64_t i, int k) { write(i, gated[k]); },
               [&](std::int64_t i) {
                 read(i, rest);
                 write(i, rest);
               });
  });
}

// One access of what backward reads, with the sigmoids of the gates.
template <typename T, int n>
struct Operands {
  Pack<T, n> x, z, dy;
  float open[n];

  __device__ __forceinline__ void load(const T* from_x, const T* from_z, const T* from_dy) {
    x = load_pack<n>(from_x);
    z = load_pack<n>(from_z);
    dy = load_pack<n>(from_dy);
    unpack<T, n>(z, open);
#pragma unroll
    for (int j = 0; j < n; ++j) open[j] = sigmoid(open[j]);
  }
};

// With u = x silu(z) and n = u rstd:
//   du = rstd (w dy - n mean(w dy n)),   dx = du silu(z),   dz = du x silu'(z).
// dz may be z: a thread writes what it alone reads, after it has read it. `again` gets forward's y.
template <typename T>
__global__ void __launch_bounds__(kMostThreads)
    norm_of_gated_backward_kernel(Groups in, const T* x, const T* z, const void* weight, T* dy, T* dz,
                                  std::int64_t dz_row, T* again) {
  constexpr int n = device::kElements<T, true>;
  const GroupPart<n> part(in.width);
  in.visit([&](std::int64_t begin, std::int64_t row, std::int64_t column) {
    const T* const values = x + begin;
    const T* const gates = z + row * in.z_row + column;
    T* const upstream = dy + begin;
    T* const of_gates = dz + row * dz_row + column;
    Operands<T, n> kept[kParts], rest;
    float u[n], gate[n], g[n], w[n];
    float sums[2] = {0, 0};  // u^2, w dy u
    // u, the gate's silu and w dy.
    const auto prepare = [&](std::int64_t i, const Operands<T, n>& of) {
      unpack<T, n>(of.x, u);
      unpack<T, n>(of.z, gate);
      unpack<T, n>(of.dy, g);
      load_parameters<T, n>(weight, in.is_fp32, column + i, 0.0F, w);
#pragma unroll
      for (int j = 0; j < n; ++j) {
        gate[j] *= of.open[j];
        u[j] *= gate[j];
        g[j] *= w[j];
      }
    };
    const auto read = [&](std::int64_t i, Operands<T, n>& of) {
      of.load(values + i, gates + i, upstream + i);
    };
    const auto add = [&](std::int64_t i, const Operands<T, n>& of) {
      prepare(i, of);
#pragma unroll
      for (int j = 0; j < n; ++j) {
        sums[0] += u[j] * u[j];
        sums[1] += g[j] * u[j];
      }
    };
    part.visit(
        [&](std::int64_t i, int k) {
          read(i, kept[k]);
          add(i, kept[k]);
        },
        [&](std::int64_t i) {
          read(i, rest);
          add(i, rest);
        });
    group_sums(sums);
    const float rstd = in.reciprocal_deviation(sums[0]);
    const float along = rstd * rstd * rstd * (sums[1] / static_cast<float>(in.width));
    const auto write = [&](std::int64_t i, const Operands<T, n>& of) {
      prepare(i, of);
      if (again != nullptr)
        store_pack<n>(device::scaled<T>(u, w, rstd, nullptr, in.is_fp32, i), again + begin + i);
      unpack<T, n>(of.x, w);
#pragma unroll
      for (int j = 0; j < n; ++j) {
        const float du = rstd * g[j] - along * u[j];
        g[j] = du * gate[j];
        u[j] = du * w[j] * (of.open[j] + gate[j] * (1.0F - of.open[j]));  // silu'(z) = s + z s (1 - s)
      }
      store_pack<n>(device::pack<T, n>(g), upstream + i);
      store_pack<n>(device::pack<T, n>(u), of_gates + i);
    };
    part.visit([&](std::int64_t i, int k) { write(i, kept[k]); },
               [&](std::int64_t i) {
                 read(i, rest);
                 write(i, rest);
               });
  });
}

struct Launch {
  unsigned grid;
  dim3 block;
};

// Threads for a group, each of which keeps kParts accesses, in whole warps; groups of one warp go several to
// a block.
Launch launch_of(const Groups& in, int elements) {
  const std::int64_t of_warp = std::int64_t{kWarp} * elements * kParts;
  const std::int64_t warps = (in.width + of_warp - 1) / of_warp, most = kMostThreads / kWarp;
  const dim3 block(static_cast<unsigned>((warps < most ? warps : most) * kWarp),
                   warps == 1 ? kGroupsOfNarrowBlocks : 1);
  return {device::blocks_of(in.rows * in.groups, block.y), block};
}

Groups groups_of(const NormOfGatedOnDevice& in) {
  return {.rows = in.rows,
          .groups = in.groups,
          .width = in.width,
          .z_row = in.z_row,
          .is_fp32 = in.is_fp32,
          .eps = in.eps};
}

}  // namespace

void launch_norm_of_gated(CudaElement element, const NormOfGatedOnDevice& in, void* y, void* stream) {
  if (in.rows == 0 || in.groups == 0) return;
  device::dispatch(element, [&](auto* typed) {
    using T = std::remove_pointer_t<decltype(typed)>;
    const Groups groups = groups_of(in);
    const Launch launch = launch_of(groups, device::kElements<T, true>);
    norm_of_gated_kernel<T><<<launch.grid, launch.block, 0, static_cast<cudaStream_t>(stream)>>>(
        groups, static_cast<const T*>(in.x), static_cast<const T*>(in.z), in.weight, static_cast<T*>(y));
  });
  device::check_launch("norm_of_gated", cudaGetLastError());
}

void launch_norm_of_gated_backward(CudaElement element, const NormOfGatedOnDevice& in, void* dy, void* dz,
                                   std::int64_t dz_row, void* again, void* stream) {
  if (in.rows == 0 || in.groups == 0) return;
  device::dispatch(element, [&](auto* typed) {
    using T = std::remove_pointer_t<decltype(typed)>;
    const Groups groups = groups_of(in);
    const Launch launch = launch_of(groups, device::kElements<T, true>);
    norm_of_gated_backward_kernel<T><<<launch.grid, launch.block, 0, static_cast<cudaStream_t>(stream)>>>(
        groups, static_cast<const T*>(in.x), static_cast<const T*>(in.z), in.weight, static_cast<T*>(dy),
        static_cast<T*>(dz), dz_row, static_cast<T*>(again));
  });
  device::check_launch("norm_of_gated_backward", cudaGetLastError());
}

}  // namespace lorikeet::ops
