#include "ops/activation/gated_terms_cuda.h"

#include <type_traits>

#include "ops/activation/activate.h"
#include "ops/cuda_low_rank_tile.h"
#include "ops/cuda_partial_sums.h"

namespace lorikeet::ops {
namespace {

using device::GatedActivated;
using device::kLaneColumns;
using device::kLaneRows;
using device::kTileColumns;
using device::kTileProducts;
using device::kTileRows;
using device::kTileThreads;
using device::LeftHalf;
using device::Right;
using device::RightGradient;
using device::RightOperand;
using device::shape_of;
using device::Term;
using device::TermShape;
using device::TileLane;
using device::TileNumbers;
using device::typed;

template <typename T, Activation kind>
__global__ void __launch_bounds__(kTileThreads)
    forward_kernel(const T* gate_up, const T* gate_left, const T* gate_right, TermShape gate_shape,
                   const T* up_left, const T* up_right, TermShape up_shape, std::int64_t rows,
                   std::int64_t width, T* out) {
  __shared__ uint4 shared[2][kTileProducts][kTileThreads];
  const RightOperand gate_columns{shared[0]}, up_columns{shared[1]};
  const TileLane lane;
  const std::int64_t column = device::tile_number() * kTileColumns + lane.column;
  const bool is_column = column < width;
  const Term<T> of_gate{gate_left, gate_right, gate_shape}, of_up{up_left, up_right, up_shape};
  gate_columns.load<false>(of_gate, column, width, lane.quarter, is_column);
  up_columns.load<false>(of_up, column, width, lane.quarter, is_column);
  for (std::int64_t first = std::int64_t{blockIdx.y} * kTileRows; first < rows;
       first += std::int64_t{gridDim.y} * kTileRows) {
    const std::int64_t row = first + lane.row;
    TileNumbers<T> gates, ups;
#pragma unroll
    for (int i = 0; i < kLaneRows; ++i) {
      const T* const from = gate_up + (row + i) * 2 * width + column;
      const bool is_there = is_column && row + i < rows;
      gates.load(i, from, is_there);
      ups.load(i, from + width, is_there);
    }
    const Right gate_rows = load_left(of_gate, first, rows, lane),
                up_rows = load_left(of_up, first, rows, lane);
#pragma unroll
    for (int j = 0; j < kTileProducts; ++j) {
      float gate[kLaneRows][2], up[kLaneRows][2];
      gates.get(j, gate);
      ups.get(j, up);
      add_product(of_gate, gate_rows, gate_columns.get(j), gate);
      add_product(of_up, up_rows, up_columns.get(j), up);
#pragma unroll
      for (int n = 0; n < 4; ++n)
        gate[n / 2][n % 2] = device::gated(kind, gate[n / 2][n % 2], up[n / 2][n % 2]);
      gates.set(j, gate);
    }
#pragma unroll
    for (int i = 0; i < kLaneRows; ++i) {
      if (is_column && row + i < rows)
        device::store_pack<kLaneColumns>(gates.rows[i], out + (row + i) * width + column);
    }
  }
}

// A lane writes over what it alone has read. `again` gets forward's result, or is nullptr. `partial`:
// gridDim.y sums [rank of dy's term, width], each of the rows of blocks beside each other; see RightGradient.
template <typename T, Activation kind, bool sums_result>
__global__ void __launch_bounds__(kTileThreads)
    backward_kernel(const T* dy, const T* dy_left, const T* dy_right, TermShape dy_shape, const T* gate_left,
                    const T* gate_right, TermShape gate_shape, const T* up_left, const T* up_right,
                    TermShape up_shape, std::int64_t rows, std::int64_t width, T* gate_up, T* again,
                    float* partial) {
  __shared__ uint4 shared[3][kTileProducts][kTileThreads];
  const RightOperand dy_columns{shared[0]}, gate_columns{shared[1]}, up_columns{shared[2]};
  const TileLane lane;
  const std::int64_t column = device::tile_number() * kTileColumns + lane.column;
  const bool is_column = column < width;
  const Term<T> of_dy{dy_left, dy_right, dy_shape}, of_gate{gate_left, gate_right, gate_shape},
      of_up{up_left, up_right, up_shape};
  dy_columns.load<true>(of_dy, column, width, lane.quarter, is_column);
  gate_columns.load<false>(of_gate, column, width, lane.quarter, is_column);
  up_columns.load<false>(of_up, column, width, lane.quarter, is_column);
  // A tile is on its way while the one before it is worked on. A lane reads what it has copied itself.
  __shared__ uint4 copies[2][3 * kLaneRows][kTileThreads];
  const std::int64_t begin = std::int64_t{blockIdx.y} * kTileRows, step = std::int64_t{gridDim.y} * kTileRows;
  const auto begin_copies = [&](std::int64_t first, int stage) {
#pragma unroll
    for (int i = 0; i < kLaneRows && first < rows; ++i) {
      const std::int64_t row = first + lane.row + i;
      const bool is_there = is_column && row < rows;
      const T* const of_pairs = gate_up + row * 2 * width + column;
      uint4(*const to)[kTileThreads] = copies[stage] + 3 * i;
      device::begin_copy(&to[0][threadIdx.x], is_there ? dy + row * width + column : dy, is_there);
      device::begin_copy(&to[1][threadIdx.x], is_there ? of_pairs : gate_up, is_there);
      device::begin_copy(&to[2][threadIdx.x], is_there ? of_pairs + width : gate_up, is_there);
    }
    device::end_group();
  };
  [[maybe_unused]] RightGradient of_right;
  int stage = 0;
  begin_copies(begin, stage);
  for (std::int64_t first = begin; first < rows; first += step) {
    const std::int64_t row = first + lane.row;
    T* const pairs = gate_up + row * 2 * width + column;
    const Right dy_rows = load_left(of_dy, first, rows, lane),
                gate_rows = load_left(of_gate, first, rows, lane),
                up_rows = load_left(of_up, first, rows, lane);
    [[maybe_unused]] LeftHalf dy_ranks;
    if constexpr (sums_result) dy_ranks = RightGradient::transposed_left(dy_rows);
    begin_copies(first + step, 1 - stage);
    device::wait_for_groups<1>();
    TileNumbers<T> ds, gates, ups;
#pragma unroll
    for (int i = 0; i < kLaneRows; ++i) {
      ds.get_copy(i, copies[stage][3 * i][threadIdx.x]);
      gates.get_copy(i, copies[stage][3 * i + 1][threadIdx.x]);
      ups.get_copy(i, copies[stage][3 * i + 2][threadIdx.x]);
    }
    stage = 1 - stage;
#pragma unroll
    for (int j = 0; j < kTileProducts; ++j) {
      float d[kLaneRows][2], gate[kLaneRows][2], up[kLaneRows][2];
      ds.get(j, d);
      gates.get(j, gate);
      ups.get(j, up);
      add_product(of_dy, dy_rows, dy_columns.get(j), d);
      add_product(of_gate, gate_rows, gate_columns.get(j), gate);
      add_product(of_up, up_rows, up_columns.get(j), up);
#pragma unroll
      for (int n = 0; n < 4; ++n) {
        float &d_n = d[n / 2][n % 2], &gate_n = gate[n / 2][n % 2], &up_n = up[n / 2][n % 2];
        const GatedActivated activated = device::gated_backward(kind, gate_n, up_n, d_n);
        gate_n = activated.gate, up_n = activated.up, d_n = activated.value;
      }
      ds.set(j, d);
      if constexpr (sums_result) of_right.add(j, dy_ranks, ds);
      gates.set(j, gate);
      ups.set(j, up);
    }
#pragma unroll
    for (int i = 0; i < kLaneRows; ++i) {
      if (!is_column || row + i >= rows) continue;
      T* const to = pairs + i * 2 * width;
      device::store_pack<kLaneColumns>(gates.rows[i], to);
      device::store_pack<kLaneColumns>(ups.rows[i], to + width);
      if (again != nullptr) device::store_pack<kLaneColumns>(ds.rows[i], again + (row + i) * width + column);
    }
  }
  if constexpr (sums_result)
    of_right.store(partial + std::int64_t{blockIdx.y} * dy_shape.rank * width, dy_shape.rank,
                   device::tile_number() * kTileColumns, width, lane);
}

// sum += scale * all `count` of `partial`, four numbers a thread.
__global__ void __launch_bounds__(kTileThreads)
    sum_kernel(std::int64_t count, std::int64_t numbers, const float* partial, float scale, float* sum) {
  const std::int64_t at = 4 * (std::int64_t{blockIdx.x} * kTileThreads + threadIdx.x);
  if (at < numbers) device::add_sum(device::sum_of(partial + at, count, numbers), scale, sum + at);
}

// Calls f with a null pointer of the element type and the activation as a constant.
template <typename F>
void dispatch(CudaElement element, Activation activation, const F& f) {
  const auto with = [&](auto kind) { device::dispatch_16_bits(element, [&](auto* null) { f(null, kind); }); };
  switch (activation) {
    case Activation::kSilu: return with(std::integral_constant<Activation, Activation::kSilu>{});
    case Activation::kGeluTanh: return with(std::integral_constant<Activation, Activation::kGeluTanh>{});
    case Activation::kGelu: return with(std::integral_constant<Activation, Activation::kGelu>{});
    case Activation::kClampedSwiglu:
      return with(std::integral_constant<Activation, Activation::kClampedSwiglu>{});
  }
}

template <bool sums_result>
void launch_backward(CudaElement element, Activation activation, const void* dy,
                     const LowRankOnDevice& dy_term, const GatedTerms& terms, std::int64_t rows,
                     std::int64_t width, void* gate_up, void* again, float* partial, dim3 grid,
                     void* stream) {
  dispatch(element, activation, [&](auto* null, auto kind) {
    using T = std::remove_pointer_t<decltype(null)>;
    backward_kernel<T, kind, sums_result><<<grid, kTileThreads, 0, static_cast<cudaStream_t>(stream)>>>(
        typed<T>(dy), typed<T>(dy_term.left), typed<T>(dy_term.right), shape_of(dy_term),
        typed<T>(terms.gate.left), typed<T>(terms.gate.right), shape_of(terms.gate), typed<T>(terms.up.left),
        typed<T>(terms.up.right), shape_of(terms.up), rows, width, static_cast<T*>(gate_up),
        static_cast<T*>(again), partial);
  });
  device::check_launch("activation", cudaGetLastError());
}

}  // namespace

void launch_gated_forward(CudaElement element, Activation activation, const void* gate_up,
                          const GatedTerms& terms, std::int64_t rows, std::int64_t width, void* out,
                          void* stream) {
  if (rows == 0 || width == 0) return;
  dispatch(element, activation, [&](auto* null, auto kind) {
    using T = std::remove_pointer_t<decltype(null)>;
    forward_kernel<T, kind><<<device::grid_of_tiles(rows, device::tiles_of(width)), kTileThreads, 0,
                              static_cast<cudaStream_t>(stream)>>>(
        typed<T>(gate_up), typed<T>(terms.gate.left), typed<T>(terms.gate.right), shape_of(terms.gate),
        typed<T>(terms.up.left), typed<T>(terms.up.right), shape_of(terms.up), rows, width,
        static_cast<T*>(out));
  });
  device::check_launch("activation", cudaGetLastError());
}

void launch_gated_backward(CudaElement element, Activation activation, const void* dy,
                           const LowRankOnDevice& dy_term, const GatedTerms& terms, std::int64_t rows,
                           std::int64_t width, void* gate_up, void* again, void* stream) {
  if (rows == 0 || width == 0) return;
  launch_backward<false>(element, activation, dy, dy_term, terms, rows, width, gate_up, again,
                         /*partial=*/nullptr, device::grid_of_tiles(rows, device::tiles_of(width)), stream);
}

void launch_gated_backward_and_sum(CudaElement element, Activation activation, const void* dy,
                                   const LowRankOnDevice& dy_term, const GatedTerms& terms, std::int64_t rows,
                                   std::int64_t width, void* gate_up, float* partial, float* right_gradient,
                                   void* stream) {
  if (rows == 0 || width == 0) return;
  static_assert(kGatedBlockColumns == device::kTileWarps * kTileColumns);
  const std::int64_t sums = gated_partial_sums(rows, width), numbers = dy_term.rank * width;
  dim3 grid = device::grid_of_tiles(rows, device::tiles_of(width));
  grid.y = static_cast<unsigned>(sums);
  launch_backward<true>(element, activation, dy, dy_term, terms, rows, width, gate_up, /*again=*/nullptr,
                        partial, grid, stream);
  sum_kernel<<<device::blocks_of(numbers / 4, kTileThreads), kTileThreads, 0,
               static_cast<cudaStream_t>(stream)>>>(sums, numbers, partial, dy_term.scale, right_gradient);
  device::check_launch("activation", cudaGetLastError());
}

}  // namespace lorikeet::ops
