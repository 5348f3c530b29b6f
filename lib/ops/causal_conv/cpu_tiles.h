#pragma once

#include <ATen/Parallel.h>

#include <algorithm>
#include <cstdint>
#include <vector>

#include "ops/vector.h"

// What the CPU kernels of convolutions over packed sequences share.
namespace lorikeet::ops::cpu {

/// Rows [first, last) of the sequence that has the rows [begins, ends).
struct SequenceRows {
  std::int64_t sequence, begins, ends, first, last;
};

/// Calls f(SequenceRows) over threads for all rows that `bounds` (cu_seqlens) divides into sequences, at most
/// 64 at a time.
template <typename F>
void for_sequence_rows(const std::vector<std::int32_t>& bounds, const F& f) {
  constexpr std::int64_t kGrainRows = 16, kTileRows = 64;
  at::parallel_for(0, bounds.back(), kGrainRows, [&](std::int64_t begin, std::int64_t end) {
    auto next = std::upper_bound(bounds.begin(), bounds.end(), begin);  // where the row's sequence ends
    for (std::int64_t row = begin; row < end;) {
      while (*next <= row) ++next;
      const std::int64_t last = std::min({row + kTileRows, end, static_cast<std::int64_t>(*next)});
      f(SequenceRows{next - bounds.begin() - 1, *(next - 1), *next, row, last});
      row = last;
    }
  });
}

/// Calls f.operator()<taps>() with the number of taps, 1 to 8, as a constant.
template <typename F>
LORIKEET_INLINE void with_taps(std::int64_t taps, F f) {
  switch (taps) {
    case 1: return f.template operator()<1>();
    case 2: return f.template operator()<2>();
    case 3: return f.template operator()<3>();
    case 4: return f.template operator()<4>();
    case 5: return f.template operator()<5>();
    case 6: return f.template operator()<6>();
    case 7: return f.template operator()<7>();
    default: return f.template operator()<8>();
  }
}

// Defines run(tile, taps), which calls pass##_tile<taps>(tile) in a copy for each level of x86-64.
// NOLINTBEGIN(bugprone-macro-parentheses): T is a type, pass a function's name
#define LORIKEET_CONVOLUTION_KERNEL(Pass, pass, T)                                          \
  LORIKEET_VECTOR_CLONES void run(const Pass<T>& tile, std::int64_t taps) {                 \
    with_taps(taps, [&]<int k>() __attribute__((always_inline)) { pass##_tile<k>(tile); }); \
  }
// NOLINTEND(bugprone-macro-parentheses)

}  // namespace lorikeet::ops::cpu
