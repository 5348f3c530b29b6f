#pragma once

// Included by .cu files alone: operands of low-rank terms as lanes hold them for products [16, 16] by [16, 8]
// on tensor cores (cuda_tensor_core.h). With q = lane % 4 the places 2q, 2q + 1, 2q + 8 and 2q + 9 of a
// product's inner dimension are ranks 4q to 4q + 3 of both operands (of 8 ranks: 2q, 2q + 1 and two zeros),
// so that a lane reads its ranks of a row at once.
#include "ops/cuda_tensor_core.h"
#include "ops/cuda_vector.h"
#include "ops/low_rank_on_device.h"

namespace lorikeet::ops::device {

inline constexpr int kWarp = 32;
inline constexpr int kQuarters = 4;  // lanes that share a row of an operand

/// What a kernel needs beside a term's pointers: these are arguments of their own, since the fake card
/// translates them, and not those in structs.
struct TermShape {
  std::int64_t left_row;
  int rank;
  float scale;
};

inline TermShape shape_of(const LowRankOnDevice& term) { return {term.left_row, term.rank, term.scale}; }

/// A lane's ranks of a row of an operand, two a word; zeros behind them.
struct Ranks {
  unsigned words[2];
};

template <typename T>
__device__ __forceinline__ Ranks ranks_of_row(const T* row, int rank, int quarter) {
  if (rank == 8) return {{load_pack<2>(row + 2 * quarter).words[0], 0}};
  const auto four = load_pack<4>(row + 4 * quarter);
  return {{four.words[0], four.words[1]}};
}

/// The product of the rows `first` and `second`, a product's left operand's, and those of `right`.
template <typename T>
__device__ __forceinline__ Sum product_of_ranks(const Ranks& first, const Ranks& second, const Ranks& right) {
  Sum sum = {};
  multiply_add<T>(sum, {{first.words[0], second.words[0], first.words[1], second.words[1]}},
                  {{right.words[0], right.words[1]}});
  return sum;
}

}  // namespace lorikeet::ops::device
