#include "ops/activation/gated_terms.h"

#include <ATen/core/Tensor.h>

#include "ops/low_rank_term.h"

namespace lorikeet::ops {

std::optional<GatedTerms> gated_terms(const at::Tensor& gate_up, const std::vector<LowRankTerm>& terms) {
  const std::int64_t width = gate_up.size(1) / 2;
  const auto found = terms_of_ranges(gate_up, terms, {width, width});
  if (!found) return std::nullopt;
  return GatedTerms{found->at(0), found->at(1)};
}

std::optional<LowRankOnDevice> gradient_term(const at::Tensor& dy, const std::vector<LowRankTerm>& terms) {
  if (terms.size() != 1 || !takes_terms(dy, dy.size(1))) return std::nullopt;
  return term_on_device(dy, terms.front(), terms.front().right);
}

}  // namespace lorikeet::ops
