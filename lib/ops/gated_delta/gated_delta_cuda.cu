// Chunks are computed apart from each other first: what they need of their own tokens (DeltaChunks). Then a
// block goes through a sequence's chunks with a slice of a state's columns, which don't depend on the others.
#include "ops/gated_delta/gated_delta_cuda.h"

#include <type_traits>

#include "ops/cuda_vector.h"
#include "ops/gated_delta/cuda_shape.h"

namespace lorikeet::ops {
namespace {

using namespace delta;

constexpr float kNormEps = 1e-6F;
constexpr int kBlock = 16;  // rows whose inverse a warp computes

// (I + A)^-1 of the blocks [16, 16] on the diagonal of A, which is strictly lower, by the first two warps: a
// column a thread, from above.
__device__ __forceinline__ void invert_blocks(float4* tile) {
  if (thread() >= kSide) return;
  const int begin = thread() / kBlock * kBlock, column = thread() % kBlock;
  float x[kBlock];
#pragma unroll
  for (int i = 0; i < kBlock; ++i) {
    float sum = 0;
#pragma unroll
    for (int m = 0; m < i; m += 4) {
      float a[4];
      get(tile[place(begin + i, (begin + m) / 4)], a);
#pragma unroll
      for (int n = m; n < m + 4 && n < i; ++n) sum += a[n - m] * x[n];
    }
    x[i] = i == column ? 1 : -sum;
  }
  __syncwarp();
#pragma unroll
  for (int i = 0; i < kBlock; ++i) element(tile, begin + i, begin + column) = x[i];
}

// [X 0; L Y] on the diagonal becomes [X 0; -Y L X, Y]. The place of the zeros holds L X on the way.
template <int size>
__device__ __forceinline__ void join_blocks(float4* tile) {
  constexpr int kItems = kSide * size / 2;
#pragma unroll 1
  for (int item = thread(); item < kItems; item += kThreads) {
    const int x = item / (size * size) * 2 * size, y = x + size, i = item / size % size, j = item % size;
    float sum = 0;
#pragma unroll 4
    for (int m = 0; m < size; ++m) sum += element(tile, y + i, x + m) * element(tile, x + m, x + j);
    element(tile, x + i, y + j) = sum;
  }
  __syncthreads();
#pragma unroll 1
  for (int item = thread(); item < kItems; item += kThreads) {
    const int x = item / (size * size) * 2 * size, y = x + size, i = item / size % size, j = item % size;
    float sum = 0;
#pragma unroll 4
    for (int m = 0; m < size; ++m) sum += element(tile, y + i, y + m) * element(tile, x + m, y + j);
    element(tile, y + i, x + j) = -sum;
  }
  __syncthreads();
#pragma unroll 1
  for (int item = thread(); item < kItems; item += kThreads) {
    const int x = item / (size * size) * 2 * size;
    element(tile, x + item / size % size, x + size + item % size) = 0;
  }
  __syncthreads();
}

// beta of two tokens a lane, and g summed up to each, in fp64: by one warp. `gates`: of the chunk's first
// token and the head.
template <typename T>
__device__ __forceinline__ void compute_decays(const Shape& shape, const T* gates, int rows, float a_log,
                                               float dt_bias, RowScales& to, float* decays) {
  const int lane = opaque(thread());
  float own[2], betas[2];
#pragma unroll
  for (int i = 0; i < 2; ++i) {
    const int row = lane * 2 + i;
    own[i] = betas[i] = 0;
    if (row < rows) {
      const T* const of_row = gates + static_cast<std::int64_t>(row) * 2 * shape.value_heads;
      const float a = device::widen(of_row[shape.value_heads]) + dt_bias;
      betas[i] = 1 / (1 + expf(-device::widen(of_row[0])));
      own[i] = -expf(a_log) * (a > 20 ? a : log1pf(expf(a)));  // softplus
    }
  }
  double up_to = static_cast<double>(own[0]) + own[1];
#pragma unroll
  for (int lanes = 1; lanes < kWarp; lanes *= 2) {
    const double other = __shfl_sync(0xFFFFFFFFU, up_to, lane >= lanes ? lane - lanes : lane);
    if (lane >= lanes) up_to += other;
  }
  const double sums[2] = {up_to - own[1], up_to};
#pragma unroll
  for (int i = 0; i < 2; ++i) {
    const int row = lane * 2 + i;
    const auto decay = static_cast<float>(sums[i]), rest = static_cast<float>(sums[i] - decay);
    to.beta[row] = decays[row] = betas[i];
    to.decay[row] = decays[kSide + row] = decay;
    to.decay_rest[row] = decays[2 * kSide + row] = rest;
  }
}

// A block a chunk and key head, for all its value heads.
template <typename T>
__global__ void __launch_bounds__(kThreads, 2)
    chunks_kernel(Shape shape, const int* ends, const T* qkv, const T* gates, const float* a_log,
                  const float* dt_bias, float* norms, float* decays, float* inverse, float* scores) {
  __shared__ float4 queries[kTile];
  __shared__ float4 keys[kTile];
  __shared__ RowScales scales;
  const int slot = static_cast<int>(blockIdx.x), key_head = static_cast<int>(blockIdx.y);
  const Chunk chunk = chunk_of_slot(ends, shape.sequences, slot);
  if (chunk.rows <= 0) return;

  Patch<4> of_keys = {}, of_queries = {};
  float q_squares[kRows] = {}, k_squares[kRows] = {};
  const T* const rows = qkv + chunk.begin * shape.width;
  for (int part = 0; part < shape.parts(); ++part) {
    const int column = part * kSide, columns = shape.key_dim - column;
    const Patch<4> q = load<4>(rows + shape.q(key_head) + column, shape.width, chunk.rows, columns).patch();
    const Patch<4> k = load<4>(rows + shape.k(key_head) + column, shape.width, chunk.rows, columns).patch();
    add_dots(q, q, 1, q_squares);
    add_dots(k, k, 1, k_squares);
    __syncthreads();
    store_tile(q, queries);
    store_tile(k, keys);
    __syncthreads();
    add_product_with_transposed(of_queries, queries, keys);
    add_product_with_transposed(of_keys, keys, keys);
  }
#pragma unroll
  for (int r = 0; r < kRows; ++r) {
    const float q_sum = sum_of_row(q_squares[r]), k_sum = sum_of_row(k_squares[r]);
    const int row = first_row() + r;
    if (share() != 0) continue;
    scales.q[row] = 1 / (sqrtf(q_sum + kNormEps) * sqrtf(static_cast<float>(shape.key_dim)));
    scales.k[row] = 1 / sqrtf(k_sum + kNormEps);
    if (row >= chunk.rows) continue;
    float* const to = norms + (chunk.begin + row) * 2 * shape.key_heads + key_head;
    to[0] = scales.q[row];
    to[shape.key_heads] = scales.k[row];
  }
  __syncthreads();
  of_queries.scale_rows(scales.q);
  of_keys.scale_rows(scales.k);

  float4* const tile = keys;
  const int of_key = shape.value_heads / shape.key_heads;
  for (int head = key_head * of_key; head < (key_head + 1) * of_key; ++head) {
    if (thread() < kWarp)
      compute_decays(shape, gates + chunk.begin * 2 * shape.value_heads + head, chunk.rows, a_log[head],
                     dt_bias[head], scales, decays + shape.decays(slot, head));
    __syncthreads();  // all have read the inverse of the head before, too
    float* const to_scores = scores + shape.matrix(slot, head);
#pragma unroll
    for (int r = 0; r < kRows; ++r) {
      const int i = first_row() + r;
      float score[4] = {}, a[4] = {};
#pragma unroll
      for (int c = 0; c < 4; ++c) {
        const int j = share() * 4 + c;
        if (i < j) continue;
        const float factor = scales.between(i, j) * scales.k[j];
        score[c] = of_queries.values[r][c] * factor;
        if (i > j) a[c] = scales.beta[i] * of_keys.values[r][c] * factor;
      }
      device::store_rounded<4>(score, to_scores + i * kSide + share() * 4);
      tile[place(i, share())] = make_float4(a[0], a[1], a[2], a[3]);
    }
    __syncthreads();
    invert_blocks(tile);
    __syncthreads();
    join_blocks<kBlock>(tile);
    join_blocks<2 * kBlock>(tile);
    store<4>(own_of(tile), inverse + shape.matrix(slot, head), kSide, kSide, kSide);
  }
}

// A block a sequence, value head and slice of its columns. Where it keeps them for backward it writes states
// and values (DeltaStates), else `out` and, unless it is nullptr, `behind`.
template <typename T, bool keeps>
__global__ void __launch_bounds__(kThreads, 2)
    scan_kernel(Shape shape, int slices, const int* ends, const T* qkv, const float* norms,
                const float* decays, const float* inverse, const float* scores, const float* before,
                float* behind, T* out, float* states, float* values) {
  __shared__ float4 left[kTile];
  __shared__ float2 state_slice[kParts * kSlice];
  __shared__ float2 right[kSlice];
  __shared__ RowScales scales;
  const int block = static_cast<int>(blockIdx.x), sequence = block / slices / shape.value_heads,
            head = block / slices % shape.value_heads, key_head = shape.key_head(head);
  const int column = block % slices * kSliceColumns, columns = shape.value_dim - column;
  const int parts = shape.parts();
  const std::int64_t begin = ends[sequence], end = ends[sequence + 1];

  // Where a part of a slice of a state lies in the memory of one.
  const auto of_state = [&](int part) {
    return static_cast<std::int64_t>(part * kSide) * shape.value_dim + column;
  };
  for (int part = 0; part < parts; ++part) {
    Patch<2> state = {};
    if (before != nullptr)
      state = load<2>(before + shape.state(sequence, head) + of_state(part), shape.value_dim,
                      shape.key_dim - part * kSide, columns)
                  .patch();
    store_slice(state, state_slice + part * kSlice);
  }

  std::int64_t slot = begin / kSide + sequence;
  for (std::int64_t i = 0; begin + i * kSide < end; ++i, ++slot) {
    const Chunk chunk = chunk_of_sequence(begin, end, i);
    const T* const rows = qkv + chunk.begin * shape.width;
    const auto load_part = [&](std::int64_t of_head, int part) {
      return load<4>(rows + of_head + part * kSide, shape.width, chunk.rows, shape.key_dim - part * kSide);
    };
    const bool has_state = before != nullptr || !chunk.is_first;
    // What is multiplied next is loaded before what is multiplied now.
    Loaded<T, 4> ahead = load_part(has_state && !keeps ? shape.q(key_head) : shape.k(key_head), 0);
    const Loaded<T, 2> v = load<2>(rows + shape.v(head) + column, shape.width, chunk.rows, columns);
    __syncthreads();  // all have read what the chunk before left here
    load_scales(shape, norms, decays + shape.decays(slot, head), chunk, key_head, scales);
    __syncthreads();
    if (keeps && has_state) {
      for (int part = 0; part < parts; ++part)
        store<2>(own_of(state_slice + part * kSlice), states + shape.state(slot, head) + of_state(part),
                 shape.value_dim, shape.key_dim - part * kSide, columns);
    }
    Patch<2> sum = {}, seen = {};
    const Loaded<float, 4> inverse_ahead = load<4>(inverse + shape.matrix(slot, head), kSide, kSide, kSide);
    if (has_state) {
      if (!keeps) {
        for (int part = 0; part < parts; ++part) {
          Patch<4> q = ahead.patch();
          q.scale_rows(scales.q);
          __syncthreads();
          store_tile(q, left);
          __syncthreads();
          ahead = part + 1 < parts ? load_part(shape.q(key_head), part + 1) : load_part(shape.k(key_head), 0);
          add_product(sum, left, state_slice + part * kSlice);
        }
        sum.scale_rows(scales.from_start);
      }
      for (int part = 0; part < parts; ++part) {
        Patch<4> k = ahead.patch();
        k.scale_rows(scales.k);
        __syncthreads();
        store_tile(k, left);
        __syncthreads();
        ahead = load_part(shape.k(key_head), part + 1 < parts ? part + 1 : 0);
        add_product(seen, left, state_slice + part * kSlice);
      }
    }
    Patch<2> unseen = v.patch();
#pragma unroll
    for (int r = 0; r < kRows; ++r) {
      const int row = first_row() + r;
#pragma unroll
      for (int c = 0; c < 2; ++c)
        unseen.values[r][c] =
            scales.beta[row] * (unseen.values[r][c] - scales.from_start[row] * seen.values[r][c]);
    }
    __syncthreads();
    store_tile(inverse_ahead.patch(), left);
    store_slice(unseen, right);
    __syncthreads();
    Loaded<float, 4> scores_ahead;
    if (!keeps) scores_ahead = load<4>(scores + shape.matrix(slot, head), kSide, kSide, kSide);
    Patch<2> written = {};  // what the state gets along the keys
    add_product(written, left, right);
    if (keeps)
      store<2>(written, values + chunk.begin * shape.values_width + head * shape.value_dim + column,
               shape.values_width, chunk.rows, columns);
    __syncthreads();
    store_slice(written, right);
    if (!keeps) {
      store_tile(scores_ahead.patch(), left);
      __syncthreads();
      add_product(sum, left, right);
      store<2>(sum, out + chunk.begin * shape.values_width + head * shape.value_dim + column,
               shape.values_width, chunk.rows, columns);
      __syncthreads();
    }
    if (chunk.is_last && behind == nullptr) break;
    const float kept = scales.from_start[kSide - 1];
    for (int part = 0; part < parts; ++part) {
      Patch<4> k = ahead.patch();
      k.scale_rows(scales.k);
      k.scale_rows(scales.to_end);
      if (part > 0) __syncthreads();
      store_tile(k, left);
      __syncthreads();
      if (part + 1 < parts) ahead = load_part(shape.k(key_head), part + 1);
      Patch<2> state = own_of(state_slice + part * kSlice);
      state.scale(kept);
      add_product_of_transposed(state, left, right);
      store_slice(state, state_slice + part * kSlice);
    }
  }
  if (behind == nullptr) return;
  for (int part = 0; part < parts; ++part)
    store<2>(own_of(state_slice + part * kSlice), behind + shape.state(sequence, head) + of_state(part),
             shape.value_dim, shape.key_dim - part * kSide, columns);
}

template <typename T, bool keeps>
void launch_scan(const DeltaSizes& sizes, const DeltaRows& in, const DeltaChunks& chunks, const float* before,
                 float* behind, void* out, const DeltaStates& kept, void* stream) {
  const Shape shape(sizes);
  const int slices = slices_of(shape);
  const auto blocks = static_cast<unsigned>(sizes.sequences * sizes.value_heads * slices);
  scan_kernel<T, keeps><<<blocks, kThreads, 0, static_cast<cudaStream_t>(stream)>>>(
      shape, slices, in.ends, static_cast<const T*>(in.qkv), chunks.norms, chunks.decays, chunks.inverse,
      chunks.scores, before, behind, static_cast<T*>(out), kept.states, kept.values);
  device::check_launch("gated_delta", cudaGetLastError());
}

}  // namespace

void launch_delta_chunks(CudaElement element, const DeltaSizes& sizes, const DeltaRows& in,
                         const DeltaChunks& chunks, void* stream) {
  if (sizes.sequences == 0) return;
  device::dispatch(element, [&](auto* null) {
    using T = std::remove_pointer_t<decltype(null)>;
    const dim3 grid(static_cast<unsigned>(sizes.slots()), static_cast<unsigned>(sizes.key_heads));
    chunks_kernel<T><<<grid, kThreads, 0, static_cast<cudaStream_t>(stream)>>>(
        Shape(sizes), in.ends, static_cast<const T*>(in.qkv), static_cast<const T*>(in.gates), in.a_log,
        in.dt_bias, chunks.norms, chunks.decays, chunks.inverse, chunks.scores);
    device::check_launch("gated_delta", cudaGetLastError());
  });
}

void launch_delta_forward(CudaElement element, const DeltaSizes& sizes, const DeltaRows& in,
                          const DeltaChunks& chunks, const float* before, float* behind, void* out,
                          void* stream) {
  if (sizes.sequences == 0) return;
  device::dispatch(element, [&](auto* null) {
    launch_scan<std::remove_pointer_t<decltype(null)>, false>(sizes, in, chunks, before, behind, out, {},
                                                              stream);
  });
}

void launch_delta_states(CudaElement element, const DeltaSizes& sizes, const DeltaRows& in,
                         const DeltaChunks& chunks, const DeltaStates& out, void* stream) {
  if (sizes.sequences == 0) return;
  device::dispatch(element, [&](auto* null) {
    launch_scan<std::remove_pointer_t<decltype(null)>, true>(sizes, in, chunks, nullptr, nullptr, nullptr,
                                                             out, stream);
  });
}

}  // namespace lorikeet::ops
