#pragma once

#include <cstdint>

// Kernels of packed products: operands are copied, as fp32, into the order in which tiles of the result read
// them, and multiplied there. Plain loops over vectors of a fixed length, compiled for several levels of
// x86-64 (ops/vector.h).

namespace lorikeet::ops::tiles {

/// The tile that is kept in registers: rows x columns elements of the result.
struct TileShape {
  int rows, columns;
};
inline constexpr TileShape kNarrow{6, 16};  ///< 12 vectors of 8 floats, of AVX2's 16 registers
inline constexpr TileShape kWide{12, 32};   ///< 24 vectors of 16 floats, of AVX-512's 32
/// Floats behind a packed left operand that packing may overwrite.
inline constexpr std::int64_t kSlack = 16;

/// The tile for this CPU: kWide with AVX-512.
TileShape tile_of_cpu();

/// Whether these kernels are compiled for the vectors that this CPU has: on x86-64 with AVX2.
bool fast_on_cpu();

/// One operand as packing reads it. `lanes` are the left one's rows or the right one's columns, which a tile
/// has side by side; `inner` is what products are summed over. One of the two strides is 1.
struct Operand {
  const void* data = nullptr;  ///< fp32, or bf16
  bool is_bf16 = false;
  std::int64_t lane_stride = 1, inner_stride = 1;  ///< in elements
};

/// Copies `width` lanes from `begin` on, of which the operand has those in [0, end), and `inner` elements of
/// each from `first` on to out[inner][width], fp32, with zeros for lanes that it hasn't. `width` is a tile's
/// rows or columns; up to kSlack floats behind are overwritten.
void pack(const Operand& from, std::int64_t begin, std::int64_t end, std::int64_t first, std::int64_t inner,
          int width, float* out);

/// sums[rows of all left tiles, columns of all slivers], with rows `stride` floats apart, = or += left right.
/// `left` holds left_tiles tiles of packed rows, `right` slivers of packed columns, right_stride floats
/// apart, each with `inner` elements a lane.
struct TileProduct {
  const float* left;
  std::int64_t left_tiles;
  const float* right;
  std::int64_t right_stride, slivers;
  std::int64_t inner;
  float* sums;
  std::int64_t stride;
  bool add;
};
void multiply(const TileProduct& product, TileShape shape);

/// out[0, count) = sums + bias (or nullptr), rounded to bf16 or kept, or out += scale sums, in fp32.
void store_bf16(const float* sums, const float* bias, std::int64_t count, void* out);
void store_fp32(const float* sums, const float* bias, std::int64_t count, float* out);
void add_fp32(const float* sums, float scale, std::int64_t count, float* out);

}  // namespace lorikeet::ops::tiles
