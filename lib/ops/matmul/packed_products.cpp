#include "ops/matmul/packed_products.h"

#include <ATen/Functions.h>

#include <algorithm>

#include "ops/dry_run.h"

namespace lorikeet::ops {
namespace {

bool is_bf16(const at::Tensor& tensor) { return tensor.scalar_type() == at::kBFloat16; }

at::Tensor in_fp32(const at::Tensor& bias) { return bias.defined() ? bias.to(at::kFloat) : bias; }

}  // namespace

bool packs_widened(const at::Tensor& out, const at::Tensor& left, const at::Tensor& right) {
  return kernels_of(out) == at::kCPU && (is_bf16(left) || is_bf16(right)) && packs(out) && packs(left) &&
         packs(right) && packed_products();
}

bool packs_pairs(const at::Tensor& out, const at::Tensor& left, const at::Tensor& right,
                 const std::vector<LowRankTerm>& terms) {
  return packs_widened(out, left, right) && is_bf16(left) && is_bf16(right) &&
         std::ranges::all_of(
             terms, [](const LowRankTerm& term) { return is_bf16(term.left) && is_bf16(term.right); }) &&
         multiplies_natively(at::kBFloat16, out.device()) && native_products_are_own();
}

std::vector<PackedTerm> packed_nt_terms(const std::vector<LowRankTerm>& terms, std::int64_t begin,
                                        std::int64_t end) {
  std::vector<PackedTerm> packed;
  packed.reserve(terms.size());
  for (const LowRankTerm& term : terms) {
    const auto from = std::max(begin, term.begin);
    const auto to = std::min(end, term.begin + term.right.size(0));
    if (from >= to) continue;
    packed.push_back(
        {term.left, term.right.slice(0, from - term.begin, to - term.begin).t(), from - begin, term.scale});
  }
  return packed;
}

std::vector<PackedTerm> packed_nn_terms(const std::vector<LowRankTerm>& terms) {
  std::vector<PackedTerm> packed;
  packed.reserve(terms.size());
  for (const LowRankTerm& term : terms) packed.push_back({term.left, term.right, 0, term.scale});
  return packed;
}

void packed_nt(at::Tensor& out, const at::Tensor& x, const at::Tensor& w,
               const std::vector<LowRankTerm>& terms, const at::Tensor& bias, const tiles::Kernel& kernel) {
  multiply_packed(out, x, w.t(), packed_nt_terms(terms, 0, w.size(0)), in_fp32(bias), std::nullopt, kernel);
}

void packed_nn(at::Tensor& out, const at::Tensor& y, const at::Tensor& w,
               const std::vector<LowRankTerm>& terms, const tiles::Kernel& kernel) {
  multiply_packed(out, y, w, packed_nn_terms(terms), {}, std::nullopt, kernel);
}

void packed_tn_add(at::Tensor& out, const at::Tensor& y, const at::Tensor& x, double scale) {
  const auto kernel = packs_pairs(out, y.t(), x) ? tiles::kPairs : tiles::kernel_of_cpu();
  if (y.size(1) <= x.size(1)) return multiply_packed(out, y.t(), x, {}, {}, scale, kernel);
  // The narrower one is the left operand: the right one is packed in longer rows, and only once.
  auto turned = at::empty({x.size(1), y.size(1)}, out.options());
  multiply_packed(turned, x.t(), y, {}, {}, std::nullopt, kernel);
  if (!out.is_meta()) out.add_(turned.t(), scale);
}

}  // namespace lorikeet::ops
