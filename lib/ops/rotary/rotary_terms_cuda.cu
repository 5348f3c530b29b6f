// A warp has 32 columns of the lower half of a head and the 32 that rotary pairs with them, for all the rows
// that its block takes, so that it reads the terms' right operands once.
#include "ops/rotary/rotary_terms_cuda.h"

#include <type_traits>

#include "ops/cuda_low_rank_tile.h"
#include "ops/rotary/rotate_pairs.h"

namespace lorikeet::ops {
namespace {

using device::kTileColumns;
using device::kTileHalf;
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

static_assert(kTileColumns == kRotaryTermColumns);

struct Heads {
  std::int64_t q, kv, head_dim;
};

// A lane writes over what it alone has read.
template <typename T>
__global__ void __launch_bounds__(kTileThreads)
    rotary_kernel(T* qkv, const float* cos, const float* sin, std::int64_t rows, Heads heads, const T* q_left,
                  const T* q_right, TermShape q_shape, const T* k_left, const T* k_right, TermShape k_shape,
                  const T* v_left, const T* v_right, TermShape v_shape) {
  const std::int64_t half = heads.head_dim / 2, of_head = half / kTileColumns;
  const std::int64_t at = device::tile_number(), head = at / of_head;
  if (head >= heads.q + 2 * heads.kv) return;
  const bool is_value = head >= heads.q + heads.kv, is_query = head < heads.q;
  const Term<T> term = is_value   ? Term<T>{v_left, v_right, v_shape}
                       : is_query ? Term<T>{q_left, q_right, q_shape}
                                  : Term<T>{k_left, k_right, k_shape};
  if (is_value && term.left == nullptr) return;  // values stay as they are
  const std::int64_t head0 = is_value ? heads.q + heads.kv : is_query ? 0 : heads.q;
  const std::int64_t first = (head - head0) * heads.head_dim + (at - head * of_head) * kTileColumns;
  // Columns of the term, and of a row of qkv.
  const TileLane low(first), high(first + half);
  const std::int64_t term_width = (is_query ? heads.q : heads.kv) * heads.head_dim;
  const std::int64_t width = (heads.q + 2 * heads.kv) * heads.head_dim;
  const std::int64_t column = head0 * heads.head_dim + low.column;
  const std::int64_t angle = low.column % heads.head_dim;
  Ranks low_columns[kTileProducts], high_columns[kTileProducts];
  device::load_right<false>(term, low, term_width, low_columns);
  device::load_right<false>(term, high, term_width, high_columns);
  for (std::int64_t row0 = std::int64_t{blockIdx.y} * kTileRows; row0 < rows;
       row0 += std::int64_t{gridDim.y} * kTileRows) {
    const std::int64_t row = row0 + low.row;
    TileNumbers<T> lows, highs;
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      const T* const from = qkv + (row + i * kTileHalf) * width + column;
      lows.load(i, from, row + i * kTileHalf < rows);
      highs.load(i, from + half, row + i * kTileHalf < rows);
    }
    Ranks left[2];
    load_left(term, row, rows, low.quarter, left);
    // Two products at a time, whose columns' angles are 16 bytes.
#pragma unroll
    for (int j = 0; j < kTileProducts; j += 2) {
      float low_pairs[2][2][2], high_pairs[2][2][2];  // of a product, a row
#pragma unroll
      for (int p = 0; p < 2; ++p) {
        lows.get(j + p, low_pairs[p]);
        highs.get(j + p, high_pairs[p]);
        add_product(term, left, low_columns[j + p], low_pairs[p]);
        add_product(term, left, high_columns[j + p], high_pairs[p]);
      }
      if (!is_value) {
#pragma unroll
        for (int i = 0; i < 2; ++i) {
          const std::int64_t from =
              (row + i * kTileHalf < rows ? row + i * kTileHalf : rows - 1) * half + angle + 2 * j;
          float a[4], b[4];
#pragma unroll
          for (int c = 0; c < 4; ++c) {
            a[c] = low_pairs[c / 2][i][c % 2];
            b[c] = high_pairs[c / 2][i][c % 2];
          }
          device::rotate_pairs(a, b, cos + from, sin + from, 1.0F);
#pragma unroll
          for (int c = 0; c < 4; ++c) {
            low_pairs[c / 2][i][c % 2] = a[c];
            high_pairs[c / 2][i][c % 2] = b[c];
          }
        }
      }
#pragma unroll
      for (int p = 0; p < 2; ++p) {
        lows.set(j + p, low_pairs[p]);
        highs.set(j + p, high_pairs[p]);
      }
    }
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      if (row + i * kTileHalf >= rows) continue;
      T* const to = qkv + (row + i * kTileHalf) * width + column;
      device::store_pack<device::kLaneColumns>(lows.rows[i], to);
      device::store_pack<device::kLaneColumns>(highs.rows[i], to + half);
    }
  }
}

}  // namespace

void launch_rotary(CudaElement element, void* qkv, const float* cos, const float* sin, std::int64_t rows,
                   const HeadLayout& layout, const HeadTerms& terms, void* stream) {
  if (rows == 0) return;
  const dim3 grid = device::grid_of_tiles(rows, layout.width() / 2);
  device::dispatch_16_bits(element, [&](auto* null) {
    using T = std::remove_pointer_t<decltype(null)>;
    rotary_kernel<T><<<grid, kTileThreads, 0, static_cast<cudaStream_t>(stream)>>>(
        static_cast<T*>(qkv), cos, sin, rows, Heads{layout.heads, layout.kv_heads, layout.head_dim},
        typed<T>(terms.q.left), typed<T>(terms.q.right), shape_of(terms.q), typed<T>(terms.k.left),
        typed<T>(terms.k.right), shape_of(terms.k), typed<T>(terms.v.left), typed<T>(terms.v.right),
        shape_of(terms.v));
  });
  device::check_launch("rotate", cudaGetLastError());
}

}  // namespace lorikeet::ops
