#include "ops/activation/gated_terms_cuda.h"

#include <type_traits>

#include "ops/activation/activate.h"
#include "ops/cuda_low_rank_tile.h"

namespace lorikeet::ops {
namespace {

using device::activate;
using device::Activated;
using device::kTileColumns;
using device::kTileProducts;
using device::kTileRows;
using device::kTileThreads;
using device::Ranks;
using device::shape_of;
using device::Term;
using device::TermShape;
using device::TileLane;
using device::TileNumbers;
using device::typed;

template <typename T>
__global__ void __launch_bounds__(kTileThreads)
    forward_kernel(Activation kind, const T* gate_up, const T* gate_left, const T* gate_right,
                   TermShape gate_shape, const T* up_left, const T* up_right, TermShape up_shape,
                   std::int64_t rows, std::int64_t width, T* out) {
  const std::int64_t first = device::tile_number() * kTileColumns;
  if (first >= width) return;
  const TileLane lane(first);
  const Term<T> of_gate{gate_left, gate_right, gate_shape}, of_up{up_left, up_right, up_shape};
  Ranks gate_columns[kTileProducts], up_columns[kTileProducts];
  device::load_right<false>(of_gate, lane, width, gate_columns);
  device::load_right<false>(of_up, lane, width, up_columns);
  for (std::int64_t row0 = std::int64_t{blockIdx.y} * kTileRows; row0 < rows;
       row0 += std::int64_t{gridDim.y} * kTileRows) {
    const std::int64_t row = row0 + lane.row;
    TileNumbers<T> gates, ups;
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const T* const from = gate_up + (row + half * device::kTileHalf) * 2 * width + lane.column;
      gates.load(half, from, lane.is_there(row, half, rows, width));
      ups.load(half, from + width, lane.is_there(row, half, rows, width));
    }
    Ranks gate_rows[2], up_rows[2];
    load_left(of_gate, row, rows, lane.quarter, gate_rows);
    load_left(of_up, row, rows, lane.quarter, up_rows);
#pragma unroll
    for (int j = 0; j < kTileProducts; ++j) {
      float gate[2][2], up[2][2];
      gates.get(j, gate);
      ups.get(j, up);
      add_product(of_gate, gate_rows, gate_columns[j], gate);
      add_product(of_up, up_rows, up_columns[j], up);
#pragma unroll
      for (int i = 0; i < 4; ++i)
        gate[i / 2][i % 2] = activate(kind, gate[i / 2][i % 2]).value * up[i / 2][i % 2];
      gates.set(j, gate);
    }
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      if (lane.is_there(row, half, rows, width))
        device::store_pack<device::kLaneColumns>(
            gates.rows[half], out + (row + half * device::kTileHalf) * width + lane.column);
    }
  }
}

// A lane writes over what it alone has read. `again` gets forward's result, or is nullptr.
template <typename T>
__global__ void __launch_bounds__(kTileThreads)
    backward_kernel(Activation kind, const T* dy, const T* dy_left, const T* dy_right, TermShape dy_shape,
                    const T* gate_left, const T* gate_right, TermShape gate_shape, const T* up_left,
                    const T* up_right, TermShape up_shape, std::int64_t rows, std::int64_t width, T* gate_up,
                    T* again) {
  const std::int64_t first = device::tile_number() * kTileColumns;
  if (first >= width) return;
  const TileLane lane(first);
  const Term<T> of_dy{dy_left, dy_right, dy_shape}, of_gate{gate_left, gate_right, gate_shape},
      of_up{up_left, up_right, up_shape};
  Ranks dy_columns[kTileProducts], gate_columns[kTileProducts], up_columns[kTileProducts];
  device::load_right<true>(of_dy, lane, width, dy_columns);
  device::load_right<false>(of_gate, lane, width, gate_columns);
  device::load_right<false>(of_up, lane, width, up_columns);
  for (std::int64_t row0 = std::int64_t{blockIdx.y} * kTileRows; row0 < rows;
       row0 += std::int64_t{gridDim.y} * kTileRows) {
    const std::int64_t row = row0 + lane.row;
    T* const pairs = gate_up + row * 2 * width + lane.column;
    TileNumbers<T> ds, gates, ups;
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const bool is_there = lane.is_there(row, half, rows, width);
      const T* const from = pairs + half * device::kTileHalf * 2 * width;
      ds.load(half, dy + (row + half * device::kTileHalf) * width + lane.column, is_there);
      gates.load(half, from, is_there);
      ups.load(half, from + width, is_there);
    }
    Ranks dy_rows[2], gate_rows[2], up_rows[2];
    load_left(of_dy, row, rows, lane.quarter, dy_rows);
    load_left(of_gate, row, rows, lane.quarter, gate_rows);
    load_left(of_up, row, rows, lane.quarter, up_rows);
#pragma unroll
    for (int j = 0; j < kTileProducts; ++j) {
      float d[2][2], gate[2][2], up[2][2];
      ds.get(j, d);
      gates.get(j, gate);
      ups.get(j, up);
      add_product(of_dy, dy_rows, dy_columns[j], d);
      add_product(of_gate, gate_rows, gate_columns[j], gate);
      add_product(of_up, up_rows, up_columns[j], up);
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        float &d_i = d[i / 2][i % 2], &gate_i = gate[i / 2][i % 2], &up_i = up[i / 2][i % 2];
        const Activated activated = activate(kind, gate_i);
        gate_i = d_i * activated.slope * up_i;
        const float product = activated.value * up_i;
        up_i = d_i * activated.value;
        d_i = product;
      }
      ds.set(j, d);
      gates.set(j, gate);
      ups.set(j, up);
    }
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      if (!lane.is_there(row, half, rows, width)) continue;
      T* const to = pairs + half * device::kTileHalf * 2 * width;
      device::store_pack<device::kLaneColumns>(gates.rows[half], to);
      device::store_pack<device::kLaneColumns>(ups.rows[half], to + width);
      if (again != nullptr)
        device::store_pack<device::kLaneColumns>(
            ds.rows[half], again + (row + half * device::kTileHalf) * width + lane.column);
    }
  }
}

}  // namespace

void launch_gated_forward(CudaElement element, Activation activation, const void* gate_up,
                          const GatedTerms& terms, std::int64_t rows, std::int64_t width, void* out,
                          void* stream) {
  if (rows == 0 || width == 0) return;
  device::dispatch_16_bits(element, [&](auto* null) {
    using T = std::remove_pointer_t<decltype(null)>;
    forward_kernel<T>
        <<<device::grid_of_tiles(rows, width), kTileThreads, 0, static_cast<cudaStream_t>(stream)>>>(
            activation, typed<T>(gate_up), typed<T>(terms.gate.left), typed<T>(terms.gate.right),
            shape_of(terms.gate), typed<T>(terms.up.left), typed<T>(terms.up.right), shape_of(terms.up), rows,
            width, static_cast<T*>(out));
  });
  device::check_launch("activation", cudaGetLastError());
}

void launch_gated_backward(CudaElement element, Activation activation, const void* dy,
                           const LowRankOnDevice& dy_term, const GatedTerms& terms, std::int64_t rows,
                           std::int64_t width, void* gate_up, void* again, void* stream) {
  if (rows == 0 || width == 0) return;
  device::dispatch_16_bits(element, [&](auto* null) {
    using T = std::remove_pointer_t<decltype(null)>;
    backward_kernel<T>
        <<<device::grid_of_tiles(rows, width), kTileThreads, 0, static_cast<cudaStream_t>(stream)>>>(
            activation, typed<T>(dy), typed<T>(dy_term.left), typed<T>(dy_term.right), shape_of(dy_term),
            typed<T>(terms.gate.left), typed<T>(terms.gate.right), shape_of(terms.gate),
            typed<T>(terms.up.left), typed<T>(terms.up.right), shape_of(terms.up), rows, width,
            static_cast<T*>(gate_up), static_cast<T*>(again));
  });
  device::check_launch("activation", cudaGetLastError());
}

}  // namespace lorikeet::ops
