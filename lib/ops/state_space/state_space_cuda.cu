// Chunks are computed apart from each other first: what they need of their own tokens (StateSpaceChunks).
// Then a block goes through a sequence's chunks with a slice of a state's columns, which don't depend on the
// others.
#include "ops/state_space/state_space_cuda.h"

#include <type_traits>

#include "ops/cuda_vector.h"
#include "ops/state_space/cuda_shape.h"

namespace lorikeet::ops {
namespace {

using namespace space;

// StateSpaceChunks::decays of one head, two tokens a lane. `dt`: the chunk's first. Sums are fp64, of which
// two fp32 numbers keep enough.
template <typename T>
__device__ __forceinline__ void store_decays(const T* dt, std::int64_t stride, int rows, float a_log,
                                             float dt_bias, float* decays) {
  const int lane = thread() % kWarp;
  float steps[2];
  double own[2];
#pragma unroll
  for (int i = 0; i < 2; ++i) {
    const int row = lane * 2 + i;
    steps[i] = 0;
    if (row < rows) {
      const float a = device::widen(dt[row * stride]) + dt_bias;
      steps[i] = a > 20 ? a : log1pf(expf(a));  // softplus
    }
    own[i] = static_cast<double>(-expf(a_log) * steps[i]);
  }
  double up_to = own[0] + own[1];
#pragma unroll
  for (int lanes = 1; lanes < kWarp; lanes *= 2) {
    const double other = __shfl_sync(0xFFFFFFFFU, up_to, lane >= lanes ? lane - lanes : lane);
    if (lane >= lanes) up_to += other;
  }
  const double sums[2] = {up_to - own[1], up_to};
#pragma unroll
  for (int i = 0; i < 2; ++i) {
    const int row = lane * 2 + i;
    const auto decay = static_cast<float>(sums[i]);
    decays[row] = steps[i];
    decays[kSide + row] = decay;
    decays[2 * kSide + row] = static_cast<float>(sums[i] - static_cast<double>(decay));
  }
}

// A block a chunk and group, for all its heads.
template <typename T>
__global__ void __launch_bounds__(kThreads, 2)
    chunks_kernel(Shape shape, const int* ends, const T* xbc, const T* dt, std::int64_t dt_stride,
                  const float* a_log, const float* dt_bias, float* decays, float* products) {
  __shared__ float4 left[kTile];
  __shared__ float4 right[kTile];
  const int slot = static_cast<int>(blockIdx.x), group = static_cast<int>(blockIdx.y);
  const Chunk chunk = chunk_of_slot(ends, shape.sequences, slot);
  if (chunk.rows <= 0) return;

  const int of_group = shape.heads / shape.groups;
  for (int i = thread() / kWarp; i < of_group; i += kThreads / kWarp) {
    const int head = group * of_group + i;
    store_decays(dt + chunk.begin * dt_stride + head, dt_stride, chunk.rows, a_log[head], dt_bias[head],
                 decays + shape.decays(slot, head));
  }

  Patch<4> product = {};
  const T* const rows = xbc + chunk.begin * shape.width;
  for (int column = 0; column < shape.state_dim; column += kSide) {
    const int columns = shape.state_dim - column;
    const auto c = load<4>(rows + shape.c(group) + column, shape.width, chunk.rows, columns);
    const auto b = load<4>(rows + shape.b(group) + column, shape.width, chunk.rows, columns);
    __syncthreads();
    store_tile(c.patch(), left);
    store_tile(b.patch(), right);
    __syncthreads();
    add_product_with_transposed(product, left, right);
  }
  store<4>(product, products + shape.products(slot, group), kSide, kSide, kSide);
}

// A block a sequence, head and slice of its columns, 16 times those of a thread. Where it keeps them for
// backward it writes states before chunks, else `out` and, unless it is nullptr, `behind`.
template <typename T, bool keeps, int of_thread>
__global__ void __launch_bounds__(kThreads, 2)
    scan_kernel(Shape shape, int slices, const int* ends, const T* xbc, const float* d, const float* decays,
                const float* products, const float* before, float* behind, T* out, float* states) {
  __shared__ float4 left[kTile];
  __shared__ SliceElement<of_thread> state_slice[4 / of_thread * kSlice];
  __shared__ SliceElement<of_thread> right[kSlice];
  __shared__ RowScales scales;
  const int block = static_cast<int>(blockIdx.x), sequence = block / slices / shape.heads,
            head = block / slices % shape.heads, group = shape.group(head);
  const int column = block % slices * kRowThreads * of_thread, columns = shape.head_dim - column;
  const int parts = shape.parts();
  const std::int64_t begin = ends[sequence], end = ends[sequence + 1];

  // Where a part of a slice of a state lies in the memory of one.
  const auto of_state = [&](int part) {
    return static_cast<std::int64_t>(part * kSide) * shape.head_dim + column;
  };
  for (int part = 0; part < parts; ++part) {
    Patch<of_thread> state = {};
    if (before != nullptr)
      state = load<of_thread>(before + shape.state(sequence, head) + of_state(part), shape.head_dim,
                              shape.state_dim - part * kSide, columns)
                  .patch();
    store_slice(state, state_slice + part * kSlice);
  }

  std::int64_t slot = begin / kSide + sequence;
  for (std::int64_t i = 0; begin + i * kSide < end; ++i, ++slot) {
    const Chunk chunk = chunk_of_sequence(begin, end, i);
    const T* const rows = xbc + chunk.begin * shape.width;
    const auto load_part = [&](int of_group, int part) {
      return load<4>(rows + of_group + part * kSide, shape.width, chunk.rows, shape.state_dim - part * kSide);
    };
    const bool has_state = before != nullptr || !chunk.is_first;
    // What is multiplied next is loaded before what is multiplied now.
    Loaded<T, 4> ahead = load_part(has_state && !keeps ? shape.c(group) : shape.b(group), 0);
    const auto x = load<of_thread>(rows + head * shape.head_dim + column, shape.width, chunk.rows, columns);
    __syncthreads();  // all have read what the chunk before left here
    if (thread() < kSide) load_scales(decays + shape.decays(slot, head), thread(), scales);
    if (keeps && has_state) {
      for (int part = 0; part < parts; ++part)
        store<of_thread>(own_of(state_slice + part * kSlice),
                         states + shape.state(chunk.begin / kSide - 1, head) + of_state(part), shape.head_dim,
                         shape.state_dim - part * kSide, columns);
    }
    __syncthreads();
    Patch<of_thread> written = x.patch();  // step x
    written.scale_rows(scales.step);
    store_slice(written, right);
    if (!keeps) {
      Patch<of_thread> sum = {};
      const auto products_ahead = load<4>(products + shape.products(slot, group), kSide, kSide, kSide);
      if (has_state) {
        for (int part = 0; part < parts; ++part) {
          if (part > 0) __syncthreads();
          store_tile(ahead.patch(), left);
          __syncthreads();
          ahead = part + 1 < parts ? load_part(shape.c(group), part + 1) : load_part(shape.b(group), 0);
          add_product(sum, left, state_slice + part * kSlice);
        }
        sum.scale_rows(scales.from_start);
        __syncthreads();
      }
      Patch<4> of_pairs = products_ahead.patch();
      apply_decays(scales, of_pairs);
      store_tile(of_pairs, left);
      __syncthreads();
      add_product(sum, left, right);
      Patch<of_thread> passed = x.patch();
      passed.scale(d[head]);
      sum.add(passed);
      store<of_thread>(sum, out + chunk.begin * shape.x_width + head * shape.head_dim + column, shape.x_width,
                       chunk.rows, columns);
    }
    if (chunk.is_last && behind == nullptr) break;
    const float kept = scales.from_start[kSide - 1];
    for (int part = 0; part < parts; ++part) {
      Patch<4> b = ahead.patch();
      b.scale_rows(scales.to_end);
      __syncthreads();
      store_tile(b, left);
      __syncthreads();
      if (part + 1 < parts) ahead = load_part(shape.b(group), part + 1);
      Patch<of_thread> state = own_of(state_slice + part * kSlice);
      state.scale(kept);
      add_product_of_transposed(state, left, right);
      store_slice(state, state_slice + part * kSlice);
    }
  }
  if (behind == nullptr) return;
  for (int part = 0; part < parts; ++part)
    store<of_thread>(own_of(state_slice + part * kSlice),
                     behind + shape.state(sequence, head) + of_state(part), shape.head_dim,
                     shape.state_dim - part * kSide, columns);
}

template <typename T, bool keeps, int of_thread>
void launch_slices(const StateSpaceSizes& sizes, const StateSpaceRows& in, const StateSpaceChunks& chunks,
                   const float* before, float* behind, void* out, float* states, void* stream) {
  const auto blocks = static_cast<unsigned>(sizes.sequences * sizes.heads * sizes.slices());
  scan_kernel<T, keeps, of_thread><<<blocks, kThreads, 0, static_cast<cudaStream_t>(stream)>>>(
      Shape(sizes), static_cast<int>(sizes.slices()), in.ends, static_cast<const T*>(in.xbc), in.d,
      chunks.decays, chunks.products, before, behind, static_cast<T*>(out), states);
  device::check_launch("state_space", cudaGetLastError());
}

template <bool keeps>
void launch_scan(CudaElement element, const StateSpaceSizes& sizes, const StateSpaceRows& in,
                 const StateSpaceChunks& chunks, const float* before, float* behind, void* out, float* states,
                 void* stream) {
  if (sizes.sequences == 0) return;
  device::dispatch(element, [&](auto* null) {
    using T = std::remove_pointer_t<decltype(null)>;
    if (sizes.slice_columns() == kSliceColumns) {
      launch_slices<T, keeps, 2>(sizes, in, chunks, before, behind, out, states, stream);
    } else {
      launch_slices<T, keeps, 1>(sizes, in, chunks, before, behind, out, states, stream);
    }
  });
}

}  // namespace

void launch_state_space_chunks(CudaElement element, const StateSpaceSizes& sizes, const StateSpaceRows& in,
                               const StateSpaceChunks& chunks, void* stream) {
  if (sizes.sequences == 0) return;
  device::dispatch(element, [&](auto* null) {
    using T = std::remove_pointer_t<decltype(null)>;
    const dim3 grid(static_cast<unsigned>(sizes.slots()), static_cast<unsigned>(sizes.groups));
    chunks_kernel<T><<<grid, kThreads, 0, static_cast<cudaStream_t>(stream)>>>(
        Shape(sizes), in.ends, static_cast<const T*>(in.xbc), static_cast<const T*>(in.dt), in.dt_stride,
        in.a_log, in.dt_bias, chunks.decays, chunks.products);
    device::check_launch("state_space", cudaGetLastError());
  });
}

void launch_state_space_forward(CudaElement element, const StateSpaceSizes& sizes, const StateSpaceRows& in,
                                const StateSpaceChunks& chunks, const float* before, float* behind, void* out,
                                void* stream) {
  launch_scan<false>(element, sizes, in, chunks, before, behind, out, nullptr, stream);
}

void launch_state_space_states(CudaElement element, const StateSpaceSizes& sizes, const StateSpaceRows& in,
                               const StateSpaceChunks& chunks, const StateSpaceStates& states, void* stream) {
  launch_scan<true>(element, sizes, in, chunks, nullptr, nullptr, nullptr, states.before, stream);
}

}  // namespace lorikeet::ops
