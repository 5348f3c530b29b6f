// A warp takes 16 rows and 32 columns at a time, as four products [16, 8] of each term. With q = lane % 4 the
// places 2q, 2q + 1, 2q + 8 and 2q + 9 of a product's inner dimension are ranks 4q to 4q + 3 of both operands
// (of 8 ranks: 2q, 2q + 1 and two zeros), so that a lane reads its ranks of a row at once. Column n of
// product j is the warp's column 8 (n / 2) + 2j + n % 2, so that a lane's sums of a row are 8 neighbours, 16
// bytes.
//
// Pointers are arguments of their own: the fake card translates these, and not those in structs.
#include "ops/activation/gated_terms_cuda.h"

#include <type_traits>

#include "ops/activation/activate.h"
#include "ops/cuda_tensor_core.h"
#include "ops/cuda_vector.h"

namespace lorikeet::ops {
namespace {

using device::activate;
using device::Activated;
using device::load_pack;
using device::Pack;
using device::store_pack;
using device::unpack;

constexpr int kThreads = 256, kWarp = 32, kLanesOfRow = 4;
constexpr int kRows = 16, kHalf = kRows / 2;  // a lane has one row of each half
constexpr int kEach = 8;                      // columns of a lane: 16 bytes
constexpr int kColumns = kLanesOfRow * kEach, kProducts = kColumns / 8;
constexpr int kBlockColumns = kThreads / kWarp * kColumns;
// Enough to fill a card several times, and few, since each reads its right operands before its first rows: a
// block takes every gridDim.y-th 16 rows.
constexpr std::int64_t kBlocks = 2048;

struct TermShape {
  std::int64_t left_row;
  int rank;
  float scale;
};

template <typename T>
struct Term {
  const T* left;
  const T* right;
  TermShape shape;
};

// A lane's ranks of a row or column of an operand, two a word; zeros behind them.
struct Ranks {
  unsigned words[2];
};

// `quarter` is a lane's.
template <typename T>
__device__ __forceinline__ Ranks ranks_of_row(const T* row, int rank, int quarter) {
  if (rank == 8) return {{load_pack<2>(row + 2 * quarter).words[0], 0}};
  const auto four = load_pack<4>(row + 4 * quarter);
  return {{four.words[0], four.words[1]}};
}

template <typename T>
__device__ __forceinline__ Ranks ranks_of_column(const T* column, std::int64_t width, int rank, int quarter) {
  const int each = rank / kLanesOfRow;
  const auto* const from = reinterpret_cast<const unsigned short*>(column) + quarter * each * width;
  const auto two = [&](int i) {
    return from[i * width] | static_cast<unsigned>(from[(i + 1) * width]) << 16U;
  };
  return {{two(0), each == 2 ? 0 : two(2)}};
}

// Where a lane is among its warp's rows and columns.
struct Lane {
  int row, quarter;
  std::int64_t column;  // the first of its eight
  std::int64_t right0;  // the column of the first product whose ranks it holds for the warp

  __device__ __forceinline__ bool is_there(std::int64_t first_row, int half, std::int64_t rows,
                                           std::int64_t width) const {
    return first_row + half * kHalf < rows && column < width;
  }
};

__device__ __forceinline__ Lane lane_of(std::int64_t first_column) {
  const int lane = static_cast<int>(threadIdx.x) % kWarp, group = lane / kLanesOfRow;
  const int quarter = lane % kLanesOfRow;
  return {group, quarter, first_column + quarter * kEach, first_column + group / 2 * kEach + group % 2};
}

// The right operand's part of a lane, for all rows; zeros where there is no term and no column.
template <bool of_columns, typename T>
__device__ __forceinline__ void load_right(const Term<T>& term, const Lane& lane, std::int64_t width,
                                           Ranks (&right)[kProducts]) {
#pragma unroll
  for (int j = 0; j < kProducts; ++j) {
    right[j] = {};
    const std::int64_t column = lane.right0 + 2 * j;
    if (term.left == nullptr || column >= width) continue;
    if constexpr (of_columns) {
      right[j] = ranks_of_column(term.right + column, width, term.shape.rank, lane.quarter);
    } else {
      right[j] = ranks_of_row(term.right + column * term.shape.rank, term.shape.rank, lane.quarter);
    }
  }
}

// The left operand's part of a lane: of its two rows.
template <typename T>
__device__ __forceinline__ void load_left(const Term<T>& term, std::int64_t row, std::int64_t rows,
                                          int quarter, Ranks (&left)[2]) {
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    left[half] = {};
    if (term.left != nullptr && row + half * kHalf < rows)
      left[half] =
          ranks_of_row(term.left + (row + half * kHalf) * term.shape.left_row, term.shape.rank, quarter);
  }
}

// Adds a term to the two numbers of each of a lane's rows that are of one product.
template <typename T>
__device__ __forceinline__ void add_product(const Term<T>& term, const Ranks (&left)[2], const Ranks& right,
                                            float (&to)[2][2]) {
  if (term.left == nullptr) return;
  device::Sum sum = {};
  device::multiply_add<T>(sum, {{left[0].words[0], left[1].words[0], left[0].words[1], left[1].words[1]}},
                          {{right.words[0], right.words[1]}});
#pragma unroll
  for (int i = 0; i < 4; ++i) to[i / 2][i % 2] += term.shape.scale * sum.values[i];
}

// A lane's numbers of its two rows, as they lie in memory; zeros in rows and columns that aren't there.
template <typename T>
struct Numbers {
  Pack<T, kEach> rows[2];

  __device__ __forceinline__ void load(int half, const T* from, bool is_there) {
    rows[half] = is_there ? load_pack<kEach>(from) : Pack<T, kEach>{};
  }
  // Those of product j.
  __device__ __forceinline__ void get(int j, float (&out)[2][2]) const {
#pragma unroll
    for (int half = 0; half < 2; ++half) unpack<T, 2>(Pack<T, 2>{{rows[half].words[j]}}, out[half]);
  }
  __device__ __forceinline__ void set(int j, const float (&in)[2][2]) {
#pragma unroll
    for (int half = 0; half < 2; ++half) rows[half].words[j] = device::pack<T, 2>(in[half]).words[0];
  }
};

template <typename T>
__global__ void __launch_bounds__(kThreads)
    forward_kernel(Activation kind, const T* gate_up, const T* gate_left, const T* gate_right,
                   TermShape gate_shape, const T* up_left, const T* up_right, TermShape up_shape,
                   std::int64_t rows, std::int64_t width, T* out) {
  const std::int64_t first = blockIdx.x * std::int64_t{kBlockColumns} + threadIdx.x / kWarp * kColumns;
  if (first >= width) return;
  const Lane lane = lane_of(first);
  const Term<T> of_gate{gate_left, gate_right, gate_shape}, of_up{up_left, up_right, up_shape};
  Ranks gate_columns[kProducts], up_columns[kProducts];
  load_right<false>(of_gate, lane, width, gate_columns);
  load_right<false>(of_up, lane, width, up_columns);
  for (std::int64_t row0 = std::int64_t{blockIdx.y} * kRows; row0 < rows;
       row0 += std::int64_t{gridDim.y} * kRows) {
    const std::int64_t row = row0 + lane.row;
    Numbers<T> gates, ups;
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const T* const from = gate_up + (row + half * kHalf) * 2 * width + lane.column;
      gates.load(half, from, lane.is_there(row, half, rows, width));
      ups.load(half, from + width, lane.is_there(row, half, rows, width));
    }
    Ranks gate_rows[2], up_rows[2];
    load_left(of_gate, row, rows, lane.quarter, gate_rows);
    load_left(of_up, row, rows, lane.quarter, up_rows);
#pragma unroll
    for (int j = 0; j < kProducts; ++j) {
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
        store_pack<kEach>(gates.rows[half], out + (row + half * kHalf) * width + lane.column);
    }
  }
}

// A lane writes over what it alone has read. `again` gets forward's result, or is nullptr.
template <typename T>
__global__ void __launch_bounds__(kThreads)
    backward_kernel(Activation kind, const T* dy, const T* dy_left, const T* dy_right, TermShape dy_shape,
                    const T* gate_left, const T* gate_right, TermShape gate_shape, const T* up_left,
                    const T* up_right, TermShape up_shape, std::int64_t rows, std::int64_t width, T* gate_up,
                    T* again) {
  const std::int64_t first = blockIdx.x * std::int64_t{kBlockColumns} + threadIdx.x / kWarp * kColumns;
  if (first >= width) return;
  const Lane lane = lane_of(first);
  const Term<T> of_dy{dy_left, dy_right, dy_shape}, of_gate{gate_left, gate_right, gate_shape},
      of_up{up_left, up_right, up_shape};
  Ranks dy_columns[kProducts], gate_columns[kProducts], up_columns[kProducts];
  load_right<true>(of_dy, lane, width, dy_columns);
  load_right<false>(of_gate, lane, width, gate_columns);
  load_right<false>(of_up, lane, width, up_columns);
  for (std::int64_t row0 = std::int64_t{blockIdx.y} * kRows; row0 < rows;
       row0 += std::int64_t{gridDim.y} * kRows) {
    const std::int64_t row = row0 + lane.row;
    T* const pairs = gate_up + row * 2 * width + lane.column;
    Numbers<T> ds, gates, ups;
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const bool is_there = lane.is_there(row, half, rows, width);
      const T* const from = pairs + half * kHalf * 2 * width;
      ds.load(half, dy + (row + half * kHalf) * width + lane.column, is_there);
      gates.load(half, from, is_there);
      ups.load(half, from + width, is_there);
    }
    Ranks dy_rows[2], gate_rows[2], up_rows[2];
    load_left(of_dy, row, rows, lane.quarter, dy_rows);
    load_left(of_gate, row, rows, lane.quarter, gate_rows);
    load_left(of_up, row, rows, lane.quarter, up_rows);
#pragma unroll
    for (int j = 0; j < kProducts; ++j) {
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
      T* const to = pairs + half * kHalf * 2 * width;
      store_pack<kEach>(gates.rows[half], to);
      store_pack<kEach>(ups.rows[half], to + width);
      if (again != nullptr)
        store_pack<kEach>(ds.rows[half], again + (row + half * kHalf) * width + lane.column);
    }
  }
}

dim3 grid_of(std::int64_t rows, std::int64_t width) {
  const unsigned x = device::blocks_of(width, kBlockColumns);
  return {x, device::blocks_of(rows, kRows, (kBlocks + x - 1) / x)};
}

template <typename T>
const T* typed(const void* pointer) {
  return static_cast<const T*>(pointer);
}
TermShape shape_of(const LowRankOnDevice& term) { return {term.left_row, term.rank, term.scale}; }

}  // namespace

bool has_gated_terms(int capability) { return device::has_tensor_core_code(capability); }

void launch_gated_forward(CudaElement element, Activation activation, const void* gate_up,
                          const GatedTerms& terms, std::int64_t rows, std::int64_t width, void* out,
                          void* stream) {
  if (rows == 0 || width == 0) return;
  device::dispatch_16_bits(element, [&](auto* null) {
    using T = std::remove_pointer_t<decltype(null)>;
    forward_kernel<T><<<grid_of(rows, width), kThreads, 0, static_cast<cudaStream_t>(stream)>>>(
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
    backward_kernel<T><<<grid_of(rows, width), kThreads, 0, static_cast<cudaStream_t>(stream)>>>(
        activation, typed<T>(dy), typed<T>(dy_term.left), typed<T>(dy_term.right), shape_of(dy_term),
        typed<T>(terms.gate.left), typed<T>(terms.gate.right), shape_of(terms.gate), typed<T>(terms.up.left),
        typed<T>(terms.up.right), shape_of(terms.up), rows, width, static_cast<T*>(gate_up),
        static_cast<T*>(again));
  });
  device::check_launch("activation", cudaGetLastError());
}

}  // namespace lorikeet::ops
