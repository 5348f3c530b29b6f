// With the states before chunks, and the gradients of those behind them, chunks are computed apart from each
// other.
//
// A token's g_t is in the exponent of all that spans the token, and its gradient is the sum of the products
// of these exponentials' values and gradients. With r and delta the rows of the gradient and of the values, S
// and S' the states before and behind the chunk, M and N the gradients of q_i.k_j and k_i.k_j, these are
//
//     q_i.(dq_i by S) + k_i.(dk_i by S) for i >= t,
//     k_i.(dk_i by S') for i < t, and <exp(G of the chunk) S, dS'>,
//     x_ij = M_ij q_i.k_j + N_ij k_i.k_j for i >= t > j.
//
// A sum over i >= t of the gradients of G_i has fewer terms, but each x_ij in it whose i and j are on the
// same side of t is added and taken away again: where a head forgets nearly all, fp32 leaves few digits of
// the rest. The gradient of b_i is (1 - beta_i) r_i.delta_i, as r_i.delta_i is beta_i times that of beta_i.
#include <type_traits>

#include "ops/cuda_vector.h"
#include "ops/gated_delta/cuda_shape.h"
#include "ops/gated_delta/gated_delta_cuda.h"

namespace lorikeet::ops {
namespace {

using namespace delta;

constexpr int kWarps = kThreads / kWarp;

// Arguments of gradients_kernel, with the places of a chunk's and value head's numbers in them. These are
// computed where they are used (see `opaque`).
template <typename T>
struct OfHead {
  const T *qkv, *dout;
  const float *states, *values, *dstates, *drows;
  float *dscores, *dkeys;  // gradients of q_i.k_j and k_i.k_j, [64, 64] each
  float* sums;             // gradients of q and k, normed
  int begin, slot, head, key_head;

  __device__ __forceinline__ std::int64_t in_rows(const Shape& shape) const {
    return static_cast<std::int64_t>(opaque(begin)) * shape.width;
  }
  __device__ __forceinline__ const T* q(const Shape& shape) const {
    return qkv + in_rows(shape) + shape.q(opaque(key_head));
  }
  __device__ __forceinline__ const T* k(const Shape& shape) const {
    return qkv + in_rows(shape) + shape.k(opaque(key_head));
  }
  __device__ __forceinline__ std::int64_t in_values(const Shape& shape) const {
    return static_cast<std::int64_t>(opaque(begin)) * shape.values_width + opaque(head) * shape.value_dim;
  }
  __device__ __forceinline__ std::int64_t in_states(const Shape& shape, int key_column, int column) const {
    return shape.state(opaque(slot), opaque(head)) + key_column * shape.value_dim + column;
  }
  __device__ __forceinline__ std::int64_t in_matrices(const Shape& shape) const {
    return shape.matrix(opaque(slot), opaque(head));
  }
  __device__ __forceinline__ float* sums_q(const Shape& shape) const {
    return sums + static_cast<std::int64_t>(opaque(begin)) * shape.keys_width() + shape.q(opaque(key_head));
  }
  __device__ __forceinline__ float* sums_k(const Shape& shape) const {
    return sums + static_cast<std::int64_t>(opaque(begin)) * shape.keys_width() + shape.k(opaque(key_head));
  }
};

// A value head's sums over the rows' threads, and over the block's warps.
struct GateSums {
  float before[kSide];           // i's products through the state before the chunk
  float behind[kSide];           // and through that behind it
  float values[kSide];           // r_i.delta_i
  float spanned[kWarps][kSide];  // each warp's rows' part of the sum over i >= t > j of x_ij
  float state[kWarps];
};

// q's or k's columns of a part, normed.
template <typename T>
__device__ __forceinline__ Patch<4> load_normed(const Shape& shape, const Chunk& chunk, const T* from,
                                                int column, const float* norms) {
  Patch<4> out = load<4>(from + column, shape.width, chunk.rows, shape.key_dim - column).patch();
  out.scale_rows(norms);
  return out;
}

// Of x, 0 for i <= j: its part of the sums over i >= t > j of x_ij for each token t, by warps.
__device__ __forceinline__ void add_spanned(const Patch<4>& x, bool adds, GateSums& gate_sums) {
  float sums[4];
  passing_sums(x, sums);
  const int first = opaque(first_row()), own_share = opaque(share()), warp = opaque(thread()) / kWarp;
#pragma unroll
  for (int c = 0; c < 4; ++c) {
    float& sum = gate_sums.spanned[warp][own_share * 4 + c];
    if (first % (2 * kRows) == 0) sum = sums[c] + (adds ? sum : 0);
  }
}

// The gradients of q_i.k_j and k_i.k_j of a chunk, and what they add to those of its gates. `dscores` holds
// the scores before.
template <typename T>
__device__ __forceinline__ void compute_products(const Shape& shape, const Chunk& chunk, const OfHead<T>& of,
                                                 const RowScales& scales, float4* left, float4* right,
                                                 GateSums& gate_sums) {
  Patch<4> dscores = {}, dkeys = {};
  for (int column = 0; column < shape.value_dim; column += kSide) {
    const int columns = shape.value_dim - column;
    const auto of_values = [&](auto* values) {
      return load<4>(values + of.in_values(shape) + column, shape.values_width, chunk.rows, columns);
    };
    const auto values = of_values(of.values);
    const auto dout = of_values(of.dout);
    __syncthreads();
    store_tile(values.patch(), right);
    store_tile(dout.patch(), left);
    __syncthreads();
    const auto drows = of_values(of.drows);
    add_product_with_transposed(dscores, left, right);
    __syncthreads();
    store_tile(drows.patch(), left);
    __syncthreads();
    add_product_with_transposed(dkeys, left, right);
  }
  const int first = opaque(first_row()), first_column = opaque(share()) * 4;
  Patch<4> x = load<4>(of.dscores + of.in_matrices(shape), kSide, kSide, kSide).patch();
#pragma unroll
  for (int r = 0; r < kRows; ++r) {
#pragma unroll
    for (int c = 0; c < 4; ++c) x.values[r][c] *= first + r > first_column + c ? dscores.values[r][c] : 0;
  }
  add_spanned(x, /*adds=*/false, gate_sums);
#pragma unroll
  for (int r = 0; r < kRows; ++r) {
#pragma unroll
    for (int c = 0; c < 4; ++c) {
      const int i = first + r, j = first_column + c;
      const float factor = i >= j ? scales.between(i, j) : 0;
      if (i == j) gate_sums.values[i] = dkeys.values[r][c];
      dscores.values[r][c] *= factor;
      dkeys.values[r][c] *= i > j ? -scales.beta[i] * factor : 0;
    }
  }
  store<4>(dscores, of.dscores + of.in_matrices(shape), kSide, kSide, kSide);
  store<4>(dkeys, of.dkeys + of.in_matrices(shape), kSide, kSide, kSide);
}

// Stores a gradient of q's or k's columns of a part, on top of what is there.
__device__ __forceinline__ void store_sum(const Shape& shape, const Chunk& chunk, Patch<4> sum, int column,
                                          bool adds, float* to) {
  const int stride = shape.keys_width();
  if (adds) {
    const Patch<4> before = load<4>(to + column, stride, chunk.rows, shape.key_dim - column).patch();
#pragma unroll
    for (int r = 0; r < kRows; ++r) {
#pragma unroll
      for (int c = 0; c < 4; ++c) sum.values[r][c] += before.values[r][c];
    }
  }
  store<4>(sum, to + column, stride, chunk.rows, shape.key_dim - column);
}

// One value head's part of dq, and of dk as a row's, from key_column on.
template <typename T>
__device__ __forceinline__ void add_row_gradients(const Shape& shape, const Chunk& chunk, const OfHead<T>& of,
                                                  int key_column, bool is_first_head, const RowScales& scales,
                                                  float4* left, float4* right, GateSums& gate_sums) {
  Patch<4> dq = {}, dk = {};
  for (int column = 0; !chunk.is_first && column < shape.value_dim; column += kSide) {
    const int columns = shape.value_dim - column;
    const auto of_values = [&](auto* values) {
      return load<4>(values + of.in_values(shape) + column, shape.values_width, chunk.rows, columns).patch();
    };
    Patch<4> dout = of_values(of.dout);
    const auto state = load<4>(of.states + of.in_states(shape, key_column, column), shape.value_dim,
                               shape.key_dim - key_column, columns);
    dout.scale_rows(scales.from_start);
    __syncthreads();
    store_tile(state.patch(), right);
    store_tile(dout, left);
    __syncthreads();
    Patch<4> drows = of_values(of.drows);
    add_product_with_transposed(dq, left, right);
    drows.scale_rows(scales.beta);
    drows.scale_rows(scales.from_start);
    drows.scale(-1);
    __syncthreads();
    store_tile(drows, left);
    __syncthreads();
    add_product_with_transposed(dk, left, right);
  }
  if (!chunk.is_first)
    add_row_sums(load_normed(shape, chunk, of.q(shape), key_column, scales.q), dq, gate_sums.before);
  const Patch<4> k = load_normed(shape, chunk, of.k(shape), key_column, scales.k);
  if (!chunk.is_first) add_row_sums(k, dk, gate_sums.before);
  const auto dscores = load<4>(of.dscores + of.in_matrices(shape), kSide, kSide, kSide);
  __syncthreads();
  store_tile(dscores.patch(), left);
  store_tile(k, right);
  __syncthreads();
  const auto dkeys = load<4>(of.dkeys + of.in_matrices(shape), kSide, kSide, kSide);
  add_product(dq, left, right);
  __syncthreads();
  store_tile(dkeys.patch(), left);
  __syncthreads();
  add_product(dk, left, right);

  store_sum(shape, chunk, dq, key_column, !is_first_head, of.sums_q(shape));
  store_sum(shape, chunk, dk, key_column, !is_first_head, of.sums_k(shape));

  Patch<4> x = {};
  add_product_with_transposed(x, right, right);
  const Patch<4> factors = own_of(left);
#pragma unroll
  for (int r = 0; r < kRows; ++r) {
#pragma unroll
    for (int c = 0; c < 4; ++c) x.values[r][c] *= factors.values[r][c];
  }
  add_spanned(x, /*adds=*/true, gate_sums);
}

// And of dk as a column's. Returns the thread's part of the product of exp(G of the chunk) times the state
// before the chunk and the gradient of that behind it.
template <typename T>
__device__ __forceinline__ float add_column_gradients(const Shape& shape, const Chunk& chunk,
                                                      const OfHead<T>& of, int key_column,
                                                      const RowScales& scales, float4* left, float4* right,
                                                      GateSums& gate_sums) {
  Patch<4> dk = {};
  float product = 0;
  for (int column = 0; !chunk.is_last && column < shape.value_dim; column += kSide) {
    const int columns = shape.value_dim - column;
    const auto load_state = [&](const float* states) {
      return load<4>(states + of.in_states(shape, key_column, column), shape.value_dim,
                     shape.key_dim - key_column, columns)
          .patch();
    };
    Patch<4> values =
        load<4>(of.values + of.in_values(shape) + column, shape.values_width, chunk.rows, columns).patch();
    const Patch<4> dstate = load_state(of.dstates);
    if (!chunk.is_first) {
      float dots[kRows] = {};
      add_dots(load_state(of.states), dstate, scales.from_start[kSide - 1], dots);
      product += dots[0] + dots[1] + dots[2] + dots[3];
    }
    values.scale_rows(scales.to_end);
    __syncthreads();
    store_tile(dstate, right);
    store_tile(values, left);
    __syncthreads();
    add_product_with_transposed(dk, left, right);
  }
  const Patch<4> k = load_normed(shape, chunk, of.k(shape), key_column, scales.k);
  if (!chunk.is_last) add_row_sums(k, dk, gate_sums.behind);
  const auto dkeys = load<4>(of.dkeys + of.in_matrices(shape), kSide, kSide, kSide);
  __syncthreads();
  store_tile(dkeys.patch(), left);
  store_tile(k, right);
  __syncthreads();
  const auto dscores = load<4>(of.dscores + of.in_matrices(shape), kSide, kSide, kSide);
  add_product_of_transposed(dk, left, right);
  const Patch<4> q = load_normed(shape, chunk, of.q(shape), key_column, scales.q);
  __syncthreads();
  store_tile(dscores.patch(), left);
  store_tile(q, right);
  __syncthreads();
  add_product_of_transposed(dk, left, right);

  store_sum(shape, chunk, dk, key_column, /*adds=*/true, of.sums_k(shape));
  return product;
}

// The gradient of rows x from that of the normed ones, n = scale x:
//   scale (dn - n n.dn / length_squared), where without eps length_squared is n.n.
template <typename T>
__device__ __forceinline__ void store_norm_gradients(const Shape& shape, const Chunk& chunk, const T* x,
                                                     const float* scales, float length_squared,
                                                     const float* sums, T* dx) {
  const int stride = shape.keys_width();
  const auto of_norm = [&](int column) {
    return load<4>(sums + column, stride, chunk.rows, shape.key_dim - column).patch();
  };
  const auto normed = [&](int column) { return load_normed(shape, chunk, x, column, scales); };
  float dots[kRows] = {};
  for (int column = 0; column < shape.key_dim; column += kSide)
    add_dots(of_norm(column), normed(column), 1 / length_squared, dots);
#pragma unroll
  for (int r = 0; r < kRows; ++r) dots[r] = sum_of_row(dots[r]);
  for (int column = 0; column < shape.key_dim; column += kSide) {
    Patch<4> gradient = of_norm(column);
    const Patch<4> n = normed(column);
#pragma unroll
    for (int r = 0; r < kRows; ++r) {
#pragma unroll
      for (int c = 0; c < 4; ++c) gradient.values[r][c] -= n.values[r][c] * dots[r];
    }
    gradient.scale_rows(scales);
    store<4>(gradient, dx + column, shape.width, chunk.rows, shape.key_dim - column);
  }
}

// The gradients of b and a of two tokens a lane, by one warp.
template <typename T>
__device__ __forceinline__ void store_gate_gradients(const Shape& shape, const Chunk& chunk,
                                                     const GateSums& sums, const RowScales& scales,
                                                     const T* gates, float a_log, float dt_bias, T* dgates) {
  const int lane = opaque(thread()), first = opaque(2 * lane);
  float of_state = 0;
#pragma unroll
  for (const float part : sums.state) of_state += part;
  float spanned[2] = {};
#pragma unroll
  for (int warp = 0; warp < kWarps; ++warp) {
    spanned[0] += sums.spanned[warp][first];
    spanned[1] += sums.spanned[warp][first + 1];
  }
  // Of this lane's tokens and all behind them, and of this lane's and all in front of them.
  float from_here = sums.before[first] + sums.before[first + 1];
  float up_to_here = sums.behind[first] + sums.behind[first + 1];
#pragma unroll
  for (int lanes = 1; lanes < kWarp; lanes *= 2) {
    const float later = __shfl_down_sync(0xFFFFFFFFU, from_here, static_cast<unsigned>(lanes));
    const float earlier = __shfl_sync(0xFFFFFFFFU, up_to_here, lane >= lanes ? lane - lanes : lane);
    if (lane + lanes < kWarp) from_here += later;
    if (lane >= lanes) up_to_here += earlier;
  }
  float later = __shfl_down_sync(0xFFFFFFFFU, from_here, 1);
  float earlier = __shfl_sync(0xFFFFFFFFU, up_to_here, lane > 0 ? lane - 1 : 0);
  if (lane == kWarp - 1) later = 0;
  if (lane == 0) earlier = 0;
  const float of_token[2] = {
      from_here + earlier + spanned[0] + of_state,
      later + sums.before[first + 1] + earlier + sums.behind[first] + spanned[1] + of_state};
#pragma unroll
  for (int i = 0; i < 2; ++i) {
    const int row = first + i;
    if (row >= chunk.rows) continue;
    const std::int64_t at = static_cast<std::int64_t>(row) * 2 * shape.value_heads;
    const float a = device::widen(gates[at + shape.value_heads]) + dt_bias;
    device::narrow(sums.values[row] * (1 - scales.beta[row]), dgates[at]);
    device::narrow(-of_token[i] * expf(a_log) / (1 + expf(-a)), dgates[at + shape.value_heads]);
  }
}

// A block a chunk and key head, for all its value heads one after the other.
template <typename T>
__global__ void __launch_bounds__(kThreads, 2)
    gradients_kernel(Shape shape, const int* ends, const T* qkv, const T* gates, const float* a_log,
                     const float* dt_bias, const float* norms, const float* decays, const float* states,
                     const float* values, const float* dstates, const float* drows, const T* dout,
                     float* dkeys, float* dscores, float* sums, T* dqkv, T* dgates) {
  __shared__ float4 left[kTile];
  __shared__ float4 right[kTile];
  __shared__ RowScales scales;
  __shared__ GateSums gate_sums;
  const int slot = static_cast<int>(blockIdx.x), key_head = static_cast<int>(blockIdx.y);
  const Chunk chunk = chunk_of_slot(ends, shape.sequences, slot);
  if (chunk.rows <= 0) return;

  const int of_key = shape.value_heads / shape.key_heads, first_head = key_head * of_key;
  OfHead<T> of = {.qkv = qkv,
                  .dout = dout,
                  .states = states,
                  .values = values,
                  .dstates = dstates,
                  .drows = drows,
                  .dscores = dscores,
                  .dkeys = dkeys,
                  .sums = sums,
                  .begin = static_cast<int>(chunk.begin),
                  .slot = slot,
                  .head = first_head,
                  .key_head = key_head};
  for (int head = first_head; head < first_head + of_key; ++head) {
    __syncthreads();  // all have read what the head before left here
    load_scales(shape, norms, decays + shape.decays(slot, head), chunk, key_head, scales);
    if (thread() < kSide) gate_sums.before[thread()] = gate_sums.behind[thread()] = 0;
    __syncthreads();
    of.head = head;
    compute_products(shape, chunk, of, scales, left, right, gate_sums);
    float of_state = 0;
    for (int column = 0; column < shape.key_dim; column += kSide) {
      add_row_gradients(shape, chunk, of, column, head == first_head, scales, left, right, gate_sums);
      of_state += add_column_gradients(shape, chunk, of, column, scales, left, right, gate_sums);
    }
    of_state = sum_of_row(of_state);
    of_state += __shfl_xor_sync(0xFFFFFFFFU, of_state, kRowThreads);
    if (thread() % kWarp == 0) gate_sums.state[thread() / kWarp] = of_state;
    __syncthreads();
    const std::int64_t in_gates = chunk.begin * 2 * shape.value_heads + head;
    if (thread() < kWarp)
      store_gate_gradients(shape, chunk, gate_sums, scales, gates + in_gates, a_log[head], dt_bias[head],
                           dgates + in_gates);
  }
  T* const to = dqkv + chunk.begin * shape.width;
  store_norm_gradients(shape, chunk, of.q(shape), scales.q, 1 / static_cast<float>(shape.key_dim),
                       of.sums_q(shape), to + shape.q(key_head));
  store_norm_gradients(shape, chunk, of.k(shape), scales.k, 1, of.sums_k(shape), to + shape.k(key_head));
}

}  // namespace

void launch_delta_gradients(CudaElement element, const DeltaSizes& sizes, const DeltaRows& in,
                            const DeltaChunks& chunks, const DeltaStates& states,
                            const DeltaStateGradients& gradients, const void* dout, float* sums, void* dqkv,
                            void* dgates, void* stream) {
  if (sizes.sequences == 0) return;
  device::dispatch(element, [&](auto* null) {
    using T = std::remove_pointer_t<decltype(null)>;
    const dim3 grid(static_cast<unsigned>(sizes.slots()), static_cast<unsigned>(sizes.key_heads));
    gradients_kernel<T><<<grid, kThreads, 0, static_cast<cudaStream_t>(stream)>>>(
        Shape(sizes), in.ends, static_cast<const T*>(in.qkv), static_cast<const T*>(in.gates), in.a_log,
        in.dt_bias, chunks.norms, chunks.decays, states.states, states.values, gradients.states,
        gradients.rows, static_cast<const T*>(dout), chunks.inverse, chunks.scores, sums,
        static_cast<T*>(dqkv), static_cast<T*>(dgates));
    device::check_launch("gated_delta_backward", cudaGetLastError());
  });
}

}  // namespace lorikeet::ops
