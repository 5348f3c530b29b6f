#pragma once

#include <optional>
#include <vector>

#include "ops/activation/gated_terms_cuda.h"
#include "ops/matmul/matmul.h"

// Low-rank terms as the gated activation's kernels take them (gated_terms_cuda.h). Without data, for a dry
// run, their pointers are null.
namespace lorikeet::ops {

/// Whether they take a product's rows of `width` numbers, gate, up or dy, with terms.
bool takes_terms(const at::Tensor& product, std::int64_t width);

/// Those of gate_up [T, 2I]; nothing where the kernels don't take them.
std::optional<GatedTerms> gated_terms(const at::Tensor& gate_up, const std::vector<LowRankTerm>& terms);

/// The one of dy [T, I]; nothing where the kernels don't take it.
std::optional<LowRankOnDevice> gradient_term(const at::Tensor& dy, const std::vector<LowRankTerm>& terms);

}  // namespace lorikeet::ops
