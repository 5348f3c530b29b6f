#pragma once

#include <cstdint>

#include "ops/cuda_element.h"
#include "ops/low_rank_on_device.h"
#include "ops/norm/norm_cuda.h"

namespace lorikeet::ops {

/// Rows that the kernel takes: each block keeps eight of them in registers.
inline constexpr std::int64_t kMostWidthWithTerm = 8192;

/// launch_norm_forward of dense rows, where `term` is added to `delta`, in fp32, on the way. `element`: of 16
/// bits; width: a multiple of 8 up to kMostWidthWithTerm; every pointer is aligned to 16 bytes.
void launch_norm_forward(CudaElement element, const NormRows& rows, const NormForwardOnDevice& in,
                         const LowRankOnDevice& term, void* stream);

}  // namespace lorikeet::ops
