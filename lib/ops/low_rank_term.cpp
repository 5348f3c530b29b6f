#include "ops/low_rank_term.h"

#include <algorithm>

#include "ops/capability.h"
#include "ops/cuda_launch.h"
#include "ops/part.h"

namespace lorikeet::ops {
namespace {

// Of a matrix of 16-bit numbers and a term's operands.
constexpr std::int64_t kElementBytes = 2;

const void* pointer(const at::Tensor& tensor) { return tensor.is_meta() ? nullptr : tensor.const_data_ptr(); }

}  // namespace

bool takes_terms(const at::Tensor& product, std::int64_t width) {
  return has_cuda_elements(product) && at::isReducedFloatingType(product.scalar_type()) &&
         product.is_contiguous() && is_aligned(product) && width % 8 == 0 &&
         has_tensor_core_kernels(capability_of(product));
}

std::optional<LowRankOnDevice> term_on_device(const at::Tensor& product, const LowRankTerm& term,
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

std::optional<std::vector<LowRankOnDevice>> terms_of_ranges(const at::Tensor& product,
                                                            const std::vector<LowRankTerm>& terms,
                                                            const std::vector<std::int64_t>& widths) {
  const auto fits = [&](std::int64_t width) { return takes_terms(product, width); };
  if (terms.empty() || !std::all_of(widths.begin(), widths.end(), fits)) return std::nullopt;
  std::vector<LowRankOnDevice> found(widths.size());
  for (const LowRankTerm& term : terms) {
    const std::int64_t columns = term.right.size(0);
    std::int64_t begin = 0, covered = 0;
    for (std::size_t i = 0; i < widths.size(); begin += widths[i], ++i) {
      const std::int64_t first = begin - term.begin;
      if (first < 0 || first + widths[i] > columns) continue;
      const auto one = term_on_device(product, term, part(term.right, 0, first, first + widths[i]));
      if (!one || found[i].rank != 0) return std::nullopt;
      found[i] = *one;
      covered += widths[i];
    }
    if (covered != columns) return std::nullopt;
  }
  return found;
}

}  // namespace lorikeet::ops
