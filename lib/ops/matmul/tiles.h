#pragma once

#include <cstdint>
#include <span>

// Kernels of packed products: operands are copied into the order in which tiles of the result read them, and
// multiplied there, with sums in fp32. Of fp32: plain loops over vectors of a fixed length, compiled for
// several levels of x86-64 (ops/vector.h). Of pairs of bf16: AVX512-BF16's instruction, which multiplies two
// pairs and adds both products to a sum, and takes numbers below 2^-126 for zero.

namespace lorikeet::ops::tiles {

/// How a product is computed: the tile that is kept in registers, rows x columns sums, and what an element of
/// a packed operand holds, in 4 bytes: an fp32 number, or two bf16 numbers that are neighbours along the
/// inner dimension, the first one in the lower half.
struct Kernel {
  int rows, columns;
  bool pairs = false;

  /// Inner numbers in one element.
  std::int64_t numbers() const { return pairs ? 2 : 1; }
};
inline constexpr Kernel kNarrow{6, 16};        ///< 12 vectors of 8 floats, of AVX2's 16 registers
inline constexpr Kernel kWide{12, 32};         ///< 24 vectors of 16 floats, of AVX-512's 32
inline constexpr Kernel kPairs{12, 32, true};  ///< the same, of bf16
/// Elements behind a packed left operand that packing may overwrite.
inline constexpr std::int64_t kSlack = 16;

/// The kernel of fp32 for this CPU: kWide with AVX-512.
Kernel kernel_of_cpu();

/// Whether the kernels of fp32 are compiled for the vectors that this CPU has: on x86-64 with AVX2.
bool fast_on_cpu();

/// Whether this CPU has the instruction that kPairs is made for. On others it computes the same slowly.
bool fast_pairs_on_cpu();

/// One operand as packing reads it. `lanes` are the left one's rows or the right one's columns, which a tile
/// has side by side; `inner` is what products are summed over. One of the two strides is 1.
struct Operand {
  const void* data = nullptr;  ///< fp32, or bf16; pairs are made of bf16 only
  bool is_bf16 = false;
  std::int64_t inner = 0;                          ///< numbers of a lane
  std::int64_t lane_stride = 1, inner_stride = 1;  ///< in numbers
};

/// Copies `width` lanes from `begin` on, of which the operand has those in [0, end), and `count` elements of
/// each from the one numbered `first` on to out[count][width], with zeros for lanes that it hasn't and for
/// the second number of a pair that begins with the last. `width` is the kernel's rows or columns; up to
/// kSlack elements behind are overwritten.
void pack(const Operand& from, std::int64_t begin, std::int64_t end, std::int64_t first, std::int64_t count,
          int width, bool pairs, float* out);

/// A product of packed operands that is added up in tiles: of tiles of the left one, left_stride elements
/// apart, and slivers of the right one, right_stride elements apart, each with `inner` elements a lane.
struct Addend {
  const float* left = nullptr;
  std::int64_t left_stride = 0;
  const float* right = nullptr;
  std::int64_t right_stride = 0;
  std::int64_t inner = 0;
};

/// scale times a product that covers slivers [first, last) alone; its `right` is that of sliver 0.
struct TermAddend {
  Addend product;
  std::int64_t first = 0, last = 0;
  float scale = 1;
};

/// Where a block's sums go in the end: the first `rows` and `columns` of them to data + row * stride +
/// column, plus bias[column] (unless it is null) and rounded to bf16 or kept; with `add`, which asks for
/// fp32, += scale times the sum.
struct Output {
  void* data = nullptr;
  bool is_bf16 = false;
  std::int64_t stride = 0;
  std::int64_t rows = 0, columns = 0;
  const float* bias = nullptr;
  bool add = false;
  float scale = 1;
};

/// The sums of a block: `tiles` of rows, `slivers` of columns. Where the product is summed up in several
/// calls, its sums wait in sums[row * stride + column]: all but the first add to those, all but the last
/// leave them there. Terms are added by the first one.
struct Block {
  std::int64_t tiles = 0, slivers = 0;
  Addend product;
  std::span<const TermAddend> terms;
  bool first = true, last = true;
  float* sums = nullptr;
  std::int64_t stride = 0;
  Output out;
};
void multiply(const Block& block, const Kernel& kernel);

}  // namespace lorikeet::ops::tiles
