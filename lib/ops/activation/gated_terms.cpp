#include "ops/activation/gated_terms.h"

#include <ATen/core/Tensor.h>

#include <utility>

#include "ops/capability.h"
#include "ops/cuda_launch.h"
#include "ops/part.h"

namespace lorikeet::ops {
namespace {

// Of a matrix of 16-bit numbers and a term's operands.
constexpr std::int64_t kElementBytes = 2;

const void* pointer(const at::Tensor& tensor) { return tensor.is_meta() ? nullptr : tensor.const_data_ptr(); }

// `right`: the term's, or a part of it.
std::optional<LowRankOnDevice> on_device(const at::Tensor& product, const LowRankTerm& term,
                                         const at::Tensor& right) {
  const at::Tensor& left = term.left;
  const std::int64_t rank = left.size(1), access = rank / 4 * kElementBytes;
  const bool fits = (rank == 8 || rank == 16) && left.scalar_type() == product.scalar_type() &&
                    right.scalar_type() == product.scalar_type() && left.stride(1) == 1 &&
                    left.stride(0) * kElementBytes % access == 0 &&
                    left.storage_offset() * kElementBytes % access == 0 && right.is_contiguous() &&
                    is_aligned(right);
  if (!fits) return std::nullopt;
  return LowRankOnDevice{.left = pointer(left),
                         .left_row = left.stride(0),
                         .right = pointer(right),
                         .rank = static_cast<int>(rank),
                         .scale = static_cast<float>(term.scale)};
}

}  // namespace

bool takes_terms(const at::Tensor& product, std::int64_t width) {
  return has_cuda_elements(product) && at::isReducedFloatingType(product.scalar_type()) &&
         product.is_contiguous() && is_aligned(product) && width % 8 == 0 &&
         has_gated_terms(capability_of(product));
}

std::optional<GatedTerms> gated_terms(const at::Tensor& gate_up, const std::vector<LowRankTerm>& terms) {
  const std::int64_t width = gate_up.size(1) / 2;
  if (terms.empty() || !takes_terms(gate_up, width)) return std::nullopt;
  GatedTerms found;
  for (const LowRankTerm& term : terms) {
    const std::int64_t columns = term.right.size(0);
    std::int64_t covered = 0;
    // A module that holds both has one term for both.
    for (const auto& [begin, to] : {std::pair(std::int64_t{0}, &found.gate), std::pair(width, &found.up)}) {
      const std::int64_t first = begin - term.begin;
      if (first < 0 || first + width > columns) continue;
      const auto one = on_device(gate_up, term, part(term.right, 0, first, first + width));
      if (!one || to->rank != 0) return std::nullopt;
      *to = *one;
      covered += width;
    }
    if (covered != columns) return std::nullopt;
  }
  return found;
}

std::optional<LowRankOnDevice> gradient_term(const at::Tensor& dy, const std::vector<LowRankTerm>& terms) {
  if (terms.size() != 1 || !takes_terms(dy, dy.size(1))) return std::nullopt;
  return on_device(dy, terms.front(), terms.front().right);
}

}  // namespace lorikeet::ops
