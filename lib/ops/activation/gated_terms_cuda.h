#pragma once

#include <algorithm>
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

/// launch_gated_forward of gate_up plus `terms`, by tensor cores. `element`: of 16 bits; width: a multiple of
/// 8; pointers are aligned to 16 bytes.
void launch_gated_forward(CudaElement element, Activation activation, const void* gate_up,
                          const GatedTerms& terms, std::int64_t rows, std::int64_t width, void* out,
                          void* stream);
/// launch_gated_backward of gate_up plus `terms` for the gradient dy plus `dy_term`, whose `right` is [rank,
/// width], dense.
void launch_gated_backward(CudaElement element, Activation activation, const void* dy,
                           const LowRankOnDevice& dy_term, const GatedTerms& terms, std::int64_t rows,
                           std::int64_t width, void* gate_up, void* again, void* stream);

/// Columns that a block takes.
inline constexpr std::int64_t kGatedBlockColumns = 256;

/// Partial sums of each column that launch_gated_backward_and_sum leaves: so many blocks share its rows.
/// Together at most eight blocks for each of a large GPU's 132 multiprocessors, and for 128 rows each or
/// more, so that these sums, in fp32, are few beside the result that needn't be written for them.
inline std::int64_t gated_partial_sums(std::int64_t rows, std::int64_t width) {
  constexpr std::int64_t kBlocks = 132 * 8, kLeastRows = 128;
  const std::int64_t beside =
      std::max<std::int64_t>(1, (width + kGatedBlockColumns - 1) / kGatedBlockColumns);
  return std::max<std::int64_t>(1, std::min((rows + kLeastRows - 1) / kLeastRows, kBlocks / beside));
}

/// launch_gated_backward without `again`, and right_gradient += scale left^T y with those of dy_term, [its
/// rank, width] in fp32: y is forward's result, rounded, which isn't written. `partial`:
/// gated_partial_sums(rows, width) times as many numbers. Two launches, sums in an order that depends on the
/// shape alone.
void launch_gated_backward_and_sum(CudaElement element, Activation activation, const void* dy,
                                   const LowRankOnDevice& dy_term, const GatedTerms& terms, std::int64_t rows,
                                   std::int64_t width, void* gate_up, float* partial, float* right_gradient,
                                   void* stream);

}  // namespace lorikeet::ops
