#pragma once

#include <cstdint>

#include "ops/cuda_element.h"
#include "ops/head_layout.h"
#include "ops/low_rank_on_device.h"

// Rotary of a projection whose low-rank terms were left to it (rotary.h), on a GPU, without libtorch.
namespace lorikeet::ops {

/// Those of queries, keys and values.
struct HeadTerms {
  LowRankOnDevice q, k, v;
};

inline constexpr std::int64_t kRotaryTermColumns = 32;  ///< a half of a head has a multiple of these

/// Whether the kernel takes heads of this form, which are rotated as a whole, in halves.
constexpr bool rotary_takes_terms(const HeadLayout& layout, std::int64_t half) {
  return !layout.interleaved && 2 * half == layout.head_dim && half % kRotaryTermColumns == 0 && half > 0;
}

/// launch_rotary of qkv plus `terms`, which are added to value heads too, by tensor cores. `element`: of 16
/// bits; heads as above; pointers are aligned to 16 bytes.
void launch_rotary(CudaElement element, void* qkv, const float* cos, const float* sin, std::int64_t rows,
                   const HeadLayout& layout, const HeadTerms& terms, void* stream);

}  // namespace lorikeet::ops
