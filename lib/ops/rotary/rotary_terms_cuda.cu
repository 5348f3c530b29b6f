// A warp has the lower halves of 64 pairs that rotary turns, of one head or of several, and their upper
// halves, for all the rows that its block takes.
#include "ops/rotary/rotary_terms_cuda.h"

#include <type_traits>

#include "ops/cuda_low_rank_tile.h"
#include "ops/rotary/rotate_pairs.h"

namespace lorikeet::ops {
namespace {

using device::kLaneColumns;
using device::kLaneRows;
using device::kTileColumns;
using device::kTileProducts;
using device::kTileRows;
using device::kTileThreads;
using device::Right;
using device::RightOperand;
using device::shape_of;
using device::Term;
using device::TermShape;
using device::TileLane;
using device::TileNumbers;
using device::typed;

static_assert(kRotaryTermColumns % kLaneColumns == 0);

// Heads, and the tiles of their pairs: no tile has pairs of two projections.
struct Heads {
  std::int64_t q, kv, head_dim, q_tiles, kv_tiles;

  explicit Heads(const HeadLayout& layout)
      : q(layout.heads),
        kv(layout.kv_heads),
        head_dim(layout.head_dim),
        q_tiles(device::tiles_of(layout.heads * layout.head_dim / 2)),
        kv_tiles(device::tiles_of(layout.kv_heads * layout.head_dim / 2)) {}
  std::int64_t tiles() const { return q_tiles + 2 * kv_tiles; }
};

// A lane writes over what it alone has read.
template <typename T>
__global__ void __launch_bounds__(kTileThreads)
    rotary_kernel(T* qkv, const float* cos, const float* sin, std::int64_t rows, Heads heads, const T* q_left,
                  const T* q_right, TermShape q_shape, const T* k_left, const T* k_right, TermShape k_shape,
                  const T* v_left, const T* v_right, TermShape v_shape) {
  __shared__ uint4 shared[2][kTileProducts][kTileThreads];
  const RightOperand low_columns{shared[0]}, high_columns{shared[1]};
  const TileLane lane;
  const std::int64_t tile = device::tile_number();
  const bool is_query = tile < heads.q_tiles, is_value = tile >= heads.q_tiles + heads.kv_tiles;
  const Term<T> term = is_value   ? Term<T>{v_left, v_right, v_shape}
                       : is_query ? Term<T>{q_left, q_right, q_shape}
                                  : Term<T>{k_left, k_right, k_shape};
  if (is_value && term.left == nullptr) return;  // values stay as they are
  const std::int64_t of_tiles = is_query ? 0 : heads.q_tiles + (is_value ? heads.kv_tiles : 0);
  const std::int64_t half = heads.head_dim / 2, pair = (tile - of_tiles) * kTileColumns + lane.column;
  const std::int64_t head = pair / half, angle = pair - head * half;
  const bool is_pair = head < (is_query ? heads.q : heads.kv);
  // Columns of the term, and of a row of qkv.
  const std::int64_t low = head * heads.head_dim + angle;
  const std::int64_t width = (heads.q + 2 * heads.kv) * heads.head_dim;
  const std::int64_t column = low + (is_query ? 0 : heads.q + (is_value ? heads.kv : 0)) * heads.head_dim;
  low_columns.load<false>(term, low, width, lane.quarter, is_pair);
  high_columns.load<false>(term, low + half, width, lane.quarter, is_pair);
  for (std::int64_t first = std::int64_t{blockIdx.y} * kTileRows; first < rows;
       first += std::int64_t{gridDim.y} * kTileRows) {
    const std::int64_t row = first + lane.row;
    TileNumbers<T> lows, highs;
    float c[kLaneRows][kLaneColumns] = {}, s[kLaneRows][kLaneColumns] = {};
#pragma unroll
    for (int i = 0; i < kLaneRows; ++i) {
      const bool is_there = is_pair && row + i < rows;
      const T* const from = qkv + (row + i) * width + column;
      lows.load(i, from, is_there);
      highs.load(i, from + half, is_there);
      if (is_value || !is_there) continue;
      device::load_floats<kLaneColumns>(cos + (row + i) * half + angle, c[i]);
      device::load_floats<kLaneColumns>(sin + (row + i) * half + angle, s[i]);
    }
    const Right left = load_left(term, first, rows, lane);
#pragma unroll
    for (int j = 0; j < kTileProducts; ++j) {
      float low_pairs[kLaneRows][2], high_pairs[kLaneRows][2];
      lows.get(j, low_pairs);
      highs.get(j, high_pairs);
      add_product(term, left, low_columns.get(j), low_pairs);
      add_product(term, left, high_columns.get(j), high_pairs);
      if (!is_value) {
#pragma unroll
        for (int n = 0; n < 4; ++n)
          device::rotate_pair(low_pairs[n / 2][n % 2], high_pairs[n / 2][n % 2], c[n / 2][2 * j + n % 2],
                              s[n / 2][2 * j + n % 2]);
      }
      lows.set(j, low_pairs);
      highs.set(j, high_pairs);
    }
#pragma unroll
    for (int i = 0; i < kLaneRows; ++i) {
      if (!is_pair || row + i >= rows) continue;
      T* const to = qkv + (row + i) * width + column;
      device::store_pack<kLaneColumns>(lows.rows[i], to);
      device::store_pack<kLaneColumns>(highs.rows[i], to + half);
    }
  }
}

}  // namespace

void launch_rotary(CudaElement element, void* qkv, const float* cos, const float* sin, std::int64_t rows,
                   const HeadLayout& layout, const HeadTerms& terms, void* stream) {
  if (rows == 0) return;
  const Heads heads(layout);
  const dim3 grid = device::grid_of_tiles(rows, heads.tiles());
  device::dispatch_16_bits(element, [&](auto* null) {
    using T = std::remove_pointer_t<decltype(null)>;
    rotary_kernel<T><<<grid, kTileThreads, 0, static_cast<cudaStream_t>(stream)>>>(
        static_cast<T*>(qkv), cos, sin, rows, heads, typed<T>(terms.q.left), typed<T>(terms.q.right),
        shape_of(terms.q), typed<T>(terms.k.left), typed<T>(terms.k.right), shape_of(terms.k),
        typed<T>(terms.v.left), typed<T>(terms.v.right), shape_of(terms.v));
  });
  device::check_launch("rotate", cudaGetLastError());
}

}  // namespace lorikeet::ops
