// A block goes through a sequence's chunks from the last to the first with a slice of the columns of the
// state's gradient.
#include <type_traits>

#include "ops/cuda_vector.h"
#include "ops/state_space/cuda_shape.h"
#include "ops/state_space/state_space_cuda.h"

namespace lorikeet::ops {
namespace {

using namespace space;

template <typename T, int of_thread>
__global__ void __launch_bounds__(kThreads, 2)
    reverse_kernel(Shape shape, int slices, const int* ends, const T* xbc, const float* d,
                   const float* decays, const float* products, const T* dout, float* dstates, float* steps,
                   std::int64_t steps_of_slice, T* dxbc) {
  __shared__ float4 left[kTile];
  __shared__ SliceElement<of_thread> state_slice[4 / of_thread * kSlice];
  __shared__ SliceElement<of_thread> right[kSlice];
  __shared__ RowScales scales;
  const int block = static_cast<int>(blockIdx.x), sequence = block / slices / shape.heads,
            head = block / slices % shape.heads, group = shape.group(head);
  const int column = block % slices * kRowThreads * of_thread, columns = shape.head_dim - column;
  const int parts = shape.parts();
  const std::int64_t begin = ends[sequence], end = ends[sequence + 1];

  for (int part = 0; part < parts; ++part) store_slice({}, state_slice + part * kSlice);
  const std::int64_t chunks = (end - begin + kSide - 1) / kSide, first_slot = begin / kSide + sequence;
  for (std::int64_t i = chunks - 1; i >= 0; --i) {
    const Chunk chunk = chunk_of_sequence(begin, end, i);
    const std::int64_t slot = first_slot + i;
    const int in_row = head * shape.head_dim + column;
    const T* const rows = xbc + chunk.begin * shape.width;
    const auto load_part = [&](int of_group, int part) {
      return load<4>(rows + of_group + part * kSide, shape.width, chunk.rows, shape.state_dim - part * kSide);
    };
    // What is multiplied next is loaded before what is multiplied now.
    Loaded<T, 4> ahead = load_part(chunk.is_last ? shape.c(group) : shape.b(group), 0);
    const auto of_out =
        load<of_thread>(dout + chunk.begin * shape.x_width + in_row, shape.x_width, chunk.rows, columns);
    const auto x = load<of_thread>(rows + in_row, shape.width, chunk.rows, columns);
    __syncthreads();  // all have read what the chunk behind left here
    if (thread() < kSide) load_scales(decays + shape.decays(slot, head), thread(), scales);
    store_slice(of_out.patch(), right);
    if (!chunk.is_last) {
      for (int part = 0; part < parts; ++part)
        store<of_thread>(own_of(state_slice + part * kSlice),
                         dstates + shape.state(chunk.begin / kSide, head) +
                             static_cast<std::int64_t>(part * kSide) * shape.head_dim + column,
                         shape.head_dim, shape.state_dim - part * kSide, columns);
    }
    __syncthreads();
    const auto products_ahead = load<4>(products + shape.products(slot, group), kSide, kSide, kSide);
    Patch<of_thread> dwritten = {};
    if (!chunk.is_last) {
      for (int part = 0; part < parts; ++part) {
        if (part > 0) __syncthreads();
        store_tile(ahead.patch(), left);
        __syncthreads();
        ahead = part + 1 < parts ? load_part(shape.b(group), part + 1) : load_part(shape.c(group), 0);
        add_product(dwritten, left, state_slice + part * kSlice);
      }
      dwritten.scale_rows(scales.to_end);
      __syncthreads();
    }
    Patch<4> of_pairs = products_ahead.patch();
    apply_decays(scales, of_pairs);
    store_tile(of_pairs, left);
    __syncthreads();
    add_product_of_transposed(dwritten, left, right);

    float of_steps[kRows] = {};
    add_dots(x.patch(), dwritten, 1, of_steps);
#pragma unroll
    for (int r = 0; r < kRows; ++r) {
      const float sum = sum_of_row(of_steps[r]);
      const int row = first_row() + r;
      if (share() == 0 && row < chunk.rows)
        steps[block % slices * steps_of_slice + (chunk.begin + row) * shape.heads + head] = sum;
    }
    dwritten.scale_rows(scales.step);
    Patch<of_thread> passed = own_of(right);
    passed.scale(d[head]);
    dwritten.add(passed);
    store<of_thread>(dwritten, dxbc + chunk.begin * shape.width + in_row, shape.width, chunk.rows, columns);
    if (chunk.is_first) break;

    const float kept = scales.from_start[kSide - 1];
    for (int part = 0; part < parts; ++part) {
      Patch<4> c = ahead.patch();
      c.scale_rows(scales.from_start);
      __syncthreads();
      store_tile(c, left);
      __syncthreads();
      if (part + 1 < parts) ahead = load_part(shape.c(group), part + 1);
      Patch<of_thread> dstate = own_of(state_slice + part * kSlice);
      dstate.scale(kept);
      add_product_of_transposed(dstate, left, right);
      store_slice(dstate, state_slice + part * kSlice);
    }
  }
}

template <typename T, int of_thread>
void launch_slices(const StateSpaceSizes& sizes, const StateSpaceRows& in, const StateSpaceChunks& chunks,
                   const void* dout, const StateSpaceStates& states, void* dxbc, void* stream) {
  const auto blocks = static_cast<unsigned>(sizes.sequences * sizes.heads * sizes.slices());
  reverse_kernel<T, of_thread><<<blocks, kThreads, 0, static_cast<cudaStream_t>(stream)>>>(
      Shape(sizes), static_cast<int>(sizes.slices()), in.ends, static_cast<const T*>(in.xbc), in.d,
      chunks.decays, chunks.products, static_cast<const T*>(dout), states.behind, states.steps,
      sizes.tokens * sizes.heads, static_cast<T*>(dxbc));
  device::check_launch("state_space_backward", cudaGetLastError());
}

}  // namespace

void launch_state_space_reverse(CudaElement element, const StateSpaceSizes& sizes, const StateSpaceRows& in,
                                const StateSpaceChunks& chunks, const void* dout,
                                const StateSpaceStates& states, void* dxbc, void* stream) {
  if (sizes.sequences == 0) return;
  device::dispatch(element, [&](auto* null) {
    using T = std::remove_pointer_t<decltype(null)>;
    if (sizes.slice_columns() == kSliceColumns) {
      launch_slices<T, 2>(sizes, in, chunks, dout, states, dxbc, stream);
    } else {
      launch_slices<T, 1>(sizes, in, chunks, dout, states, dxbc, stream);
    }
  });
}

}  // namespace lorikeet::ops
