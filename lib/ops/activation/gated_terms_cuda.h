#pragma once

#include <cstdint>

#include "ops/activation/kind.h"
#include "ops/cuda_element.h"

// The gated activation of products whose low-rank terms were left to it (activation.h), on a GPU, without
// libtorch.
namespace lorikeet::ops {

/// A low-rank term of a matrix [rows, width]: `scale` times the product of `left` [rows, rank] and `right`,
/// device memory of the matrix's element type.
struct LowRankOnDevice {
  const void* left = nullptr;  ///< a row begins at a multiple of rank / 2 bytes; nullptr: no such term
  std::int64_t left_row = 0;   ///< elements from one row to the next
  const void* right = nullptr;
  int rank = 0;  ///< 8 or 16
  float scale = 0;
};

/// Those of gate and up; `right` is [width, rank], aligned to 16 bytes.
struct GatedTerms {
  LowRankOnDevice gate, up;
};

/// Whether they were compiled for a GPU of this compute capability, 10 * major + minor: 8.0 at least.
bool has_gated_terms(int capability);

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
