#pragma once

#include <optional>
#include <vector>

#include "ops/activation/gated_terms_cuda.h"
#include "ops/matmul/matmul.h"

// Low-rank terms as the gated activation's kernels take them (gated_terms_cuda.h).
namespace lorikeet::ops {

/// Those of gate_up [T, 2I]; nothing where the kernels don't take them.
std::optional<GatedTerms> gated_terms(const at::Tensor& gate_up, const std::vector<LowRankTerm>& terms);

/// The one of dy [T, I]; nothing where the kernels don't take it.
std::optional<LowRankOnDevice> gradient_term(const at::Tensor& dy, const std::vector<LowRankTerm>& terms);

}  // namespace lorikeet::ops
