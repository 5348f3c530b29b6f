#pragma once

#include <cstdint>

#include "ops/activation/kind.h"
#include "ops/cuda_element.h"
#include "ops/low_rank_on_device.h"

// The gated activation of products whose low-rank terms were left to it (activation.h), on a GPU, without
// libtorch.
namespace lorikeet::ops {

struct GatedTerms {
  LowRankOnDevice gate, up;
};

/// launch_gated_forward of gate_up plus `terms`, by tensor cores. `element`: of 16
/// bits; width: a multiple of 8; pointers are aligned to 16 bytes.
void launch_gated_forward(CudaElement element, Activation activation, const void* gate_up,
                          const GatedTerms& terms, std::int64_t rows, std::int64_t width, void* out,
                          void* stream);
/// launch_gated_backward of gate_up plus `terms` for the gradient dy plus `dy_term`, whose `right` is [rank,
/// width], dense.
void launch_gated_backward(CudaElement element, Activation activation, const void* dy,
                           const LowRankOnDevice& dy_term, const GatedTerms& terms, std::int64_t rows,
                           std::int64_t width, void* gate_up, void* again, void* stream);

}  // namespace lorikeet::ops
