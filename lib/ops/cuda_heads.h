#pragma once

// Included by .cu files alone.
#include "ops/cuda_vector.h"
#include "ops/head_layout.h"

namespace lorikeet::ops::device {

/// Whether rows of queries, keys and values begin at accesses of n elements, 16 bytes.
inline bool are_aligned(const HeadsOnDevice& heads, std::int64_t n) {
  return is_aligned(heads.q) && is_aligned(heads.k) && is_aligned(heads.v) && heads.q_row % n == 0 &&
         heads.k_row % n == 0 && heads.v_row % n == 0;
}

}  // namespace lorikeet::ops::device
