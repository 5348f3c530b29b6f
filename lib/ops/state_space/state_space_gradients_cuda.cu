// With the states before chunks, and the gradients of those behind them, chunks are computed apart from each
// other, a few heads of a group a block: their parts of the gradients of B and C, and the gradient of dt.
//
// With P_ij = dout_i.u_j exp(G_i - G_j) for i >= j, S the state before the chunk and dS' the gradient of that
// behind it, the gradient of g_t is what passes by it: the sum over i >= t > j of P_ij C_i.B_j, over i >= t
// of exp(G_i) C_i.(S dout_i), over j < t of exp(G_last - G_j) B_j.(dS' u_j), and exp(G_last) <S, dS'>. Sums
// of a token's gradients of C, B and u give the same, but as a difference of numbers that are far larger
// where a head forgets a lot.
#include <type_traits>

#include "ops/cuda_partial_sums.h"
#include "ops/cuda_vector.h"
#include "ops/state_space/cuda_shape.h"
#include "ops/state_space/state_space_cuda.h"

namespace lorikeet::ops {
namespace {

using namespace space;

constexpr int kWarps = kThreads / kWarp, kHeadsOfBlock = StateSpaceSizes::kHeadsOfBlock;

// Of one head of a block.
struct OfHead {
  RowScales scales;
  float pairs[kSide];    // of each t: the sum over i >= t > j
  float before[kSide];   // of each i: exp(G_i) C_i.(S dout_i)
  float behind[kSide];   // of each j: exp(G_last - G_j) B_j.(dS' u_j)
  float states[kWarps];  // <S, dS'>, a part a warp
};

// Arguments of gradients_kernel, with the places of a chunk's numbers in them. These are computed where they
// are used (see `opaque`).
template <typename T>
struct OfChunk {
  const T *xbc, *dout;
  const float *states, *dstates;
  float* sums;  // of the block's first row
  int begin, group;

  __device__ __forceinline__ const T* row(const Shape& shape) const {
    return xbc + static_cast<std::int64_t>(opaque(begin)) * shape.width;
  }
  __device__ __forceinline__ const T* x(const Shape& shape, int head) const {
    return row(shape) + opaque(head) * shape.head_dim;
  }
  __device__ __forceinline__ const T* of_out(const Shape& shape, int head) const {
    return dout + static_cast<std::int64_t>(opaque(begin)) * shape.x_width + opaque(head) * shape.head_dim;
  }
  // Of the state before the chunk, or the gradient of that behind it.
  __device__ __forceinline__ std::int64_t in_states(const Shape& shape, bool before, int head, int row,
                                                    int column) const {
    return shape.state(opaque(begin) / kSide - (before ? 1 : 0), opaque(head)) +
           static_cast<std::int64_t>(row) * shape.head_dim + column;
  }
  // Of B's or C's columns, which begin at `column` of a row of xbc.
  __device__ __forceinline__ float* sums_of(const Shape& shape, int column) const {
    return sums + static_cast<std::int64_t>(opaque(begin)) * (shape.width - shape.x_width) +
           (column - shape.x_width);
  }
};

// Adds to sums[t] the sum over i >= t > j of what threads own of pairs * products. `columns`: [kWarps,
// kSide].
__device__ __forceinline__ void sum_passing(const Patch<4>& pairs, const Patch<4>& products, float* columns,
                                            float* sums) {
  Patch<4> x = pairs;
#pragma unroll
  for (int r = 0; r < kRows; ++r) {
#pragma unroll
    for (int c = 0; c < 4; ++c) x.values[r][c] *= products.values[r][c];
  }
  float passing[4];
  passing_sums(x, passing);
#pragma unroll
  for (int c = 0; c < 4; ++c) {
    if (thread() % kWarp < kRowThreads) columns[thread() / kWarp * kSide + share() * 4 + c] = passing[c];
  }
  __syncthreads();
  if (thread() >= kSide) return;
  float sum = 0;
#pragma unroll
  for (int warp = 0; warp < kWarps; ++warp) sum += columns[warp * kSide + thread()];
  sums[thread()] = sum;
}

// The sum over the block's heads of P; and their OfHead::pairs.
template <typename T>
__device__ __forceinline__ Patch<4> sum_pairs(const Shape& shape, const Chunk& chunk, const OfChunk<T>& of,
                                              int first_head, int heads, const float* products, float4* left,
                                              float4* right, float* columns, OfHead* of_heads) {
  Patch<4> sum = {};
  for (int h = 0; h < heads; ++h) {
    Patch<4> pairs = {};
    for (int column = 0; column < shape.head_dim; column += kSide) {
      const int rest = shape.head_dim - column;
      const auto dout = load<4>(of.of_out(shape, first_head + h) + column, shape.x_width, chunk.rows, rest);
      Patch<4> x = load<4>(of.x(shape, first_head + h) + column, shape.width, chunk.rows, rest).patch();
      x.scale_rows(of_heads[h].scales.step);
      __syncthreads();
      store_tile(dout.patch(), left);
      store_tile(x, right);
      __syncthreads();
      add_product_with_transposed(pairs, left, right);
    }
    apply_decays(of_heads[h].scales, pairs);
    sum.add(pairs);
    sum_passing(pairs, load<4>(products, kSide, kSide, kSide).patch(), columns, of_heads[h].pairs);
  }
  return sum;
}

// What C and B get through P: sums' first terms. `pairs`: the sum over the block's heads.
template <typename T>
__device__ __forceinline__ void store_pairs(const Shape& shape, const Chunk& chunk, const OfChunk<T>& of,
                                            const Patch<4>& pairs, float4* left, float4* right) {
  const int stride = shape.width - shape.x_width;
  __syncthreads();
  store_tile(pairs, left);
  for (int column = 0; column < shape.state_dim; column += kSide) {
    const int b = shape.b(of.group) + column, c = shape.c(of.group) + column, rest = shape.state_dim - column;
    const auto load_part = [&](int from) {
      return load<4>(of.row(shape) + from, shape.width, chunk.rows, rest);
    };
    const auto of_b = load_part(b);
    if (column > 0) __syncthreads();
    store_tile(of_b.patch(), right);
    __syncthreads();
    const auto of_c = load_part(c);
    Patch<4> dc = {}, db = {};
    add_product(dc, left, right);
    store<4>(dc, of.sums_of(shape, c), stride, chunk.rows, rest);
    __syncthreads();
    store_tile(of_c.patch(), right);
    __syncthreads();
    add_product_of_transposed(db, left, right);
    store<4>(db, of.sums_of(shape, b), stride, chunk.rows, rest);
  }
}

// What C gets through the state before the chunk, or B through the one behind it; OfHead::before and
// OfHead::behind with OfHead::states.
template <bool is_behind, typename T>
__device__ __forceinline__ void add_states(const Shape& shape, const Chunk& chunk, const OfChunk<T>& of,
                                           int first_head, int heads, float4* left, float4* right,
                                           OfHead* of_heads) {
  const int stride = shape.width - shape.x_width;
  for (int row = 0; row < shape.state_dim; row += kSide) {
    const int from = (is_behind ? shape.b(of.group) : shape.c(of.group)) + row, rest = shape.state_dim - row;
    Patch<4> sum = load<4>(of.sums_of(shape, from), stride, chunk.rows, rest).patch();
    for (int h = 0; h < heads; ++h) {
      const RowScales& scales = of_heads[h].scales;
      Patch<4> of_head = {};
      float product[kRows] = {};
      for (int column = 0; column < shape.head_dim; column += kSide) {
        const int columns = shape.head_dim - column;
        const auto load_state = [&](bool before) {
          return load<4>((before ? of.states : of.dstates) +
                             of.in_states(shape, before, first_head + h, row, column),
                         shape.head_dim, rest, columns)
              .patch();
        };
        Patch<4> upstream;
        if (is_behind) {
          upstream = load<4>(of.x(shape, first_head + h) + column, shape.width, chunk.rows, columns).patch();
          upstream.scale_rows(scales.step);
          upstream.scale_rows(scales.to_end);
        } else {
          upstream =
              load<4>(of.of_out(shape, first_head + h) + column, shape.x_width, chunk.rows, columns).patch();
          upstream.scale_rows(scales.from_start);
        }
        const Patch<4> state = load_state(!is_behind);
        if (is_behind && !chunk.is_first) add_dots(load_state(true), state, 1, product);
        __syncthreads();
        store_tile(upstream, left);
        store_tile(state, right);
        __syncthreads();
        add_product_with_transposed(of_head, left, right);
      }
      add_row_sums(load<4>(of.row(shape) + from, shape.width, chunk.rows, rest).patch(), of_head,
                   is_behind ? of_heads[h].behind : of_heads[h].before);
      sum.add(of_head);
      if (!is_behind) continue;
      float of_states = sum_of_row(product[0] + product[1] + product[2] + product[3]);
      of_states += __shfl_xor_sync(0xFFFFFFFFU, of_states, kRowThreads);
      if (thread() % kWarp == 0) of_heads[h].states[thread() / kWarp] += of_states;
    }
    store<4>(sum, of.sums_of(shape, from), stride, chunk.rows, rest);
  }
}

// The gradients of g of two tokens a lane, by one warp.
__device__ __forceinline__ void sum_decays(const OfHead& of, float (&dg)[2]) {
  const int lane = thread() % kWarp;
  float of_states = 0;
#pragma unroll
  for (const float part : of.states) of_states += part;
  of_states *= of.scales.from_start[kSide - 1];
  float from_here = of.before[2 * lane] + of.before[2 * lane + 1];
  float up_to = of.behind[2 * lane] + of.behind[2 * lane + 1];
#pragma unroll
  for (int lanes = 1; lanes < kWarp; lanes *= 2) {
    const float later = __shfl_down_sync(0xFFFFFFFFU, from_here, static_cast<unsigned>(lanes));
    if (lane + lanes < kWarp) from_here += later;
    const float earlier = __shfl_sync(0xFFFFFFFFU, up_to, lane >= lanes ? lane - lanes : lane);
    if (lane >= lanes) up_to += earlier;
  }
  // Of the lanes behind this one, and of those before it.
  float later = __shfl_down_sync(0xFFFFFFFFU, from_here, 1);
  float earlier = __shfl_sync(0xFFFFFFFFU, up_to, lane > 0 ? lane - 1 : 0);
  if (lane == kWarp - 1) later = 0;
  if (lane == 0) earlier = 0;
  dg[0] = of.pairs[2 * lane] + from_here + earlier + of_states;
  dg[1] = of.pairs[2 * lane + 1] + (later + of.before[2 * lane + 1]) + (earlier + of.behind[2 * lane]) +
          of_states;
}

// A block a chunk and kHeadsOfBlock heads of a group.
template <typename T>
__global__ void __launch_bounds__(kThreads, 2)
    gradients_kernel(Shape shape, int blocks_of_group, int slices, const int* ends, const T* xbc, const T* dt,
                     std::int64_t dt_stride, const float* a_log, const float* dt_bias, const float* decays,
                     const float* products, const T* dout, const float* states, const float* dstates,
                     const float* steps, std::int64_t steps_of_slice, float* sums, std::int64_t sums_of_block,
                     T* ddt, std::int64_t ddt_stride) {
  __shared__ float4 left[kTile];
  __shared__ float4 right[kTile];
  __shared__ float columns[kWarps * kSide];
  __shared__ OfHead of_heads[kHeadsOfBlock];
  const int slot = static_cast<int>(blockIdx.x), group = static_cast<int>(blockIdx.y) / blocks_of_group;
  const int block = static_cast<int>(blockIdx.y) % blocks_of_group, of_group = shape.heads / shape.groups;
  const int first_head = group * of_group + block * kHeadsOfBlock;
  const int left_over = of_group - block * kHeadsOfBlock;
  const int heads = left_over < kHeadsOfBlock ? left_over : kHeadsOfBlock;
  const Chunk chunk = chunk_of_slot(ends, shape.sequences, slot);
  if (chunk.rows <= 0) return;

  for (int i = thread(); i < heads * kSide; i += kThreads) {
    OfHead& of_head = of_heads[i / kSide];
    load_scales(decays + shape.decays(slot, first_head + i / kSide), i % kSide, of_head.scales);
    of_head.before[i % kSide] = of_head.behind[i % kSide] = 0;
    if (i % kSide < kWarps) of_head.states[i % kSide] = 0;
  }
  __syncthreads();
  const OfChunk<T> of = {.xbc = xbc,
                         .dout = dout,
                         .states = states,
                         .dstates = dstates,
                         .sums = sums + block * sums_of_block,
                         .begin = static_cast<int>(chunk.begin),
                         .group = group};
  const Patch<4> pairs = sum_pairs(shape, chunk, of, first_head, heads,
                                   products + shape.products(slot, group), left, right, columns, of_heads);
  store_pairs(shape, chunk, of, pairs, left, right);
  if (!chunk.is_first) add_states<false>(shape, chunk, of, first_head, heads, left, right, of_heads);
  if (!chunk.is_last) add_states<true>(shape, chunk, of, first_head, heads, left, right, of_heads);
  __syncthreads();

  const int h = thread() / kWarp, head = first_head + h, lane = thread() % kWarp;
  if (h >= heads) return;
  float dg[2];
  sum_decays(of_heads[h], dg);
#pragma unroll
  for (int i = 0; i < 2; ++i) {
    const int row = 2 * lane + i;
    if (row >= chunk.rows) continue;
    const std::int64_t token = chunk.begin + row;
    float dstep = -expf(a_log[head]) * dg[i];
    for (int slice = 0; slice < slices; ++slice)
      dstep += steps[slice * steps_of_slice + token * shape.heads + head];
    const float a = device::widen(dt[token * dt_stride + head]) + dt_bias[head];
    device::narrow(dstep / (1 + expf(-a)), ddt[token * ddt_stride + head]);
  }
}

// Four neighbouring numbers of a row a thread, of `count` in all. `dbc`: of the first row.
template <typename T>
__global__ void __launch_bounds__(kThreads)
    sums_kernel(std::int64_t count, int of_row, int blocks, std::int64_t sums_of_block, const float* sums,
                T* dbc, int stride) {
  const std::int64_t apart = static_cast<std::int64_t>(gridDim.x) * kThreads;
  for (std::int64_t i = static_cast<std::int64_t>(blockIdx.x) * kThreads + thread(); i < count; i += apart) {
    const float4 sum = device::sum_of(sums + i * 4, blocks, sums_of_block);
    const float values[4] = {sum.x, sum.y, sum.z, sum.w};
    device::store_pack<4>(device::pack<T, 4>(values), dbc + i / of_row * stride + i % of_row * 4);
  }
}

std::int64_t sums_of_block(const StateSpaceSizes& sizes) {
  return sizes.tokens * 2 * sizes.groups * sizes.state_dim;
}

}  // namespace

void launch_state_space_gradients(CudaElement element, const StateSpaceSizes& sizes, const StateSpaceRows& in,
                                  const StateSpaceChunks& chunks, const void* dout,
                                  const StateSpaceStates& states, void* ddt, std::int64_t ddt_stride,
                                  void* stream) {
  if (sizes.sequences == 0) return;
  device::dispatch(element, [&](auto* null) {
    using T = std::remove_pointer_t<decltype(null)>;
    const dim3 grid(static_cast<unsigned>(sizes.slots()),
                    static_cast<unsigned>(sizes.groups * sizes.blocks_of_group()));
    gradients_kernel<T><<<grid, kThreads, 0, static_cast<cudaStream_t>(stream)>>>(
        Shape(sizes), static_cast<int>(sizes.blocks_of_group()), static_cast<int>(sizes.slices()), in.ends,
        static_cast<const T*>(in.xbc), static_cast<const T*>(in.dt), in.dt_stride, in.a_log, in.dt_bias,
        chunks.decays, chunks.products, static_cast<const T*>(dout), states.before, states.behind,
        states.steps, sizes.tokens * sizes.heads, states.sums, sums_of_block(sizes), static_cast<T*>(ddt),
        ddt_stride);
    device::check_launch("state_space_backward", cudaGetLastError());
  });
}

void launch_state_space_sums(CudaElement element, const StateSpaceSizes& sizes, const float* sums, void* dxbc,
                             void* stream) {
  if (sizes.tokens == 0) return;
  device::dispatch(element, [&](auto* null) {
    using T = std::remove_pointer_t<decltype(null)>;
    const Shape shape(sizes);
    const std::int64_t count = sums_of_block(sizes) / 4;
    sums_kernel<T><<<device::blocks_of(count, kThreads), kThreads, 0, static_cast<cudaStream_t>(stream)>>>(
        count, (shape.width - shape.x_width) / 4, static_cast<int>(sizes.blocks_of_group()),
        sums_of_block(sizes), sums, static_cast<T*>(dxbc) + shape.x_width, shape.width);
    device::check_launch("state_space_backward", cudaGetLastError());
  });
}

}  // namespace lorikeet::ops
