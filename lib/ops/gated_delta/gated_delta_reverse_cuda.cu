// A block goes through a sequence's chunks from the last to the first with a slice of the columns of the
// state's gradient.
#include <type_traits>

#include "ops/cuda_vector.h"
#include "ops/gated_delta/cuda_shape.h"
#include "ops/gated_delta/gated_delta_cuda.h"

namespace lorikeet::ops {
namespace {

using namespace delta;

template <typename T>
__global__ void __launch_bounds__(kThreads, 2)
    reverse_kernel(Shape shape, int slices, const int* ends, const T* qkv, const float* norms,
                   const float* decays, const float* inverse, const float* scores, const T* dout,
                   float* dstates, float* drows, T* dqkv) {
  __shared__ float4 left[kTile];
  __shared__ float2 state_slice[kParts * kSlice];
  __shared__ float2 right[kSlice];
  __shared__ RowScales scales;
  const int block = static_cast<int>(blockIdx.x), sequence = block / slices / shape.value_heads,
            head = block / slices % shape.value_heads, key_head = shape.key_head(head);
  const int column = block % slices * kSliceColumns, columns = shape.value_dim - column;
  const int parts = shape.parts();
  const std::int64_t begin = ends[sequence], end = ends[sequence + 1];

  for (int part = 0; part < parts; ++part) store_slice({}, state_slice + part * kSlice);
  const std::int64_t chunks = (end - begin + kSide - 1) / kSide, first_slot = begin / kSide + sequence;
  for (std::int64_t i = chunks - 1; i >= 0; --i) {
    const Chunk chunk = chunk_of_sequence(begin, end, i);
    const std::int64_t slot = first_slot + i;
    const T* const rows = qkv + chunk.begin * shape.width;
    const std::int64_t of_values = chunk.begin * shape.values_width + head * shape.value_dim + column;
    const auto load_part = [&](std::int64_t of_head, int part) {
      return load<4>(rows + of_head + part * kSide, shape.width, chunk.rows, shape.key_dim - part * kSide);
    };
    // What is multiplied next is loaded before what is multiplied now.
    Loaded<T, 4> ahead = load_part(shape.k(key_head), 0);
    const Patch<2> of_out = load<2>(dout + of_values, shape.values_width, chunk.rows, columns).patch();
    __syncthreads();  // all have read what the chunk behind left here
    load_scales(shape, norms, decays + shape.decays(slot, head), chunk, key_head, scales);
    if (!chunk.is_last) {
      for (int part = 0; part < parts; ++part)
        store<2>(own_of(state_slice + part * kSlice),
                 dstates + shape.state(slot, head) +
                     static_cast<std::int64_t>(part * kSide) * shape.value_dim + column,
                 shape.value_dim, shape.key_dim - part * kSide, columns);
    }
    __syncthreads();
    const Loaded<float, 4> scores_ahead = load<4>(scores + shape.matrix(slot, head), kSide, kSide, kSide);
    Patch<2> dwritten = {};
    if (!chunk.is_last) {
      for (int part = 0; part < parts; ++part) {
        Patch<4> k = ahead.patch();
        k.scale_rows(scales.k);
        __syncthreads();
        store_tile(k, left);
        __syncthreads();
        ahead = load_part(shape.k(key_head), part + 1 < parts ? part + 1 : 0);
        add_product(dwritten, left, state_slice + part * kSlice);
      }
      dwritten.scale_rows(scales.to_end);
    }
    __syncthreads();
    store_tile(scores_ahead.patch(), left);
    store_slice(of_out, right);
    __syncthreads();
    const Loaded<float, 4> inverse_ahead = load<4>(inverse + shape.matrix(slot, head), kSide, kSide, kSide);
    add_product_of_transposed(dwritten, left, right);
    __syncthreads();
    store_tile(inverse_ahead.patch(), left);
    store_slice(dwritten, right);
    __syncthreads();
    Patch<2> drow = {};
    add_product_of_transposed(drow, left, right);
    store<2>(drow, drows + of_values, shape.values_width, chunk.rows, columns);
    drow.scale_rows(scales.beta);
    store<2>(drow, dqkv + chunk.begin * shape.width + shape.v(head) + column, shape.width, chunk.rows,
             columns);
    if (chunk.is_first) break;

    drow.scale_rows(scales.from_start);
    drow.scale(-1);  // what k before the state gets
    const float kept = scales.from_start[kSide - 1];
    __syncthreads();
    store_slice(drow, right);
    for (int part = 0; part < parts; ++part) {
      Patch<4> k = ahead.patch();
      k.scale_rows(scales.k);
      if (part > 0) __syncthreads();
      store_tile(k, left);
      __syncthreads();
      ahead = part + 1 < parts ? load_part(shape.k(key_head), part + 1) : load_part(shape.q(key_head), 0);
      Patch<2> dstate = own_of(state_slice + part * kSlice);
      dstate.scale(kept);
      add_product_of_transposed(dstate, left, right);
      store_slice(dstate, state_slice + part * kSlice);
    }
    __syncthreads();
    store_slice(of_out, right);
    for (int part = 0; part < parts; ++part) {
      Patch<4> q = ahead.patch();
      q.scale_rows(scales.q);
      q.scale_rows(scales.from_start);
      if (part > 0) __syncthreads();
      store_tile(q, left);
      __syncthreads();
      if (part + 1 < parts) ahead = load_part(shape.q(key_head), part + 1);
      Patch<2> dstate = own_of(state_slice + part * kSlice);
      add_product_of_transposed(dstate, left, right);
      store_slice(dstate, state_slice + part * kSlice);
    }
  }
}

}  // namespace

void launch_delta_reverse(CudaElement element, const DeltaSizes& sizes, const DeltaRows& in,
                          const DeltaChunks& chunks, const void* dout, const DeltaStateGradients& out,
                          void* dqkv, void* stream) {
  if (sizes.sequences == 0) return;
  device::dispatch(element, [&](auto* null) {
    using T = std::remove_pointer_t<decltype(null)>;
    const Shape shape(sizes);
    const int slices = slices_of(shape);
    const auto blocks = static_cast<unsigned>(sizes.sequences * sizes.value_heads * slices);
    reverse_kernel<T><<<blocks, kThreads, 0, static_cast<cudaStream_t>(stream)>>>(
        shape, slices, in.ends, static_cast<const T*>(in.qkv), chunks.norms, chunks.decays, chunks.inverse,
        chunks.scores, static_cast<const T*>(dout), out.states, out.rows, static_cast<T*>(dqkv));
    device::check_launch("gated_delta_backward", cudaGetLastError());
  });
}

}  // namespace lorikeet::ops
