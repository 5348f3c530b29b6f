#include "ops/experts/grouped_lora.h"

#include <ATen/ATen.h>

#include <algorithm>

#include "ops/in_place.h"
#include "ops/part.h"

namespace lorikeet::ops {
namespace {

constexpr std::size_t kMostParts = 2;

using Experts = std::vector<std::vector<LoraProjection>>;

// One tensor of each expert's projection `i`.
MatrixList listed(const Experts& experts, std::size_t i, at::Tensor LoraProjection::*member) {
  std::vector<at::Tensor> all;
  all.reserve(experts.size());
  for (const auto& projections : experts) all.push_back(projections[i].*member);
  return listed_in_place(all);
}

// A tensor of each expert's projections, their rows below each other.
MatrixList listed_rows(const Experts& experts, at::Tensor LoraProjection::*member) {
  std::vector<at::Tensor> all;
  all.reserve(experts.size());
  for (const auto& projections : experts) {
    std::vector<at::Tensor> parts;
    parts.reserve(projections.size());
    for (const LoraProjection& p : projections) parts.push_back(p.*member);
    all.push_back(rows_in_place(parts));
    if (!all.back().defined()) return {};
  }
  return listed_in_place(all);
}

bool are_alike(const Experts& experts) {
  const auto& first = experts.front();
  return std::all_of(experts.begin(), experts.end(), [&](const auto& projections) {
    if (projections.size() != first.size()) return false;
    for (std::size_t i = 0; i < first.size(); ++i) {
      const LoraProjection &p = projections[i], &of_first = first[i];
      if (p.out_begin != of_first.out_begin || p.out_end != of_first.out_end ||
          p.scale != first.front().scale || p.a.size(0) != of_first.a.size(0) ||
          p.grad_a.defined() != first.front().grad_a.defined() ||
          p.grad_b.defined() != of_first.grad_b.defined())
        return false;
    }
    return true;
  });
}

// Whether a gradient is of all of its parameter, or nobody wants it.
bool is_whole(const MatrixList& gradient, const MatrixList& value, bool wanted) {
  if (!wanted) return true;
  return gradient.defined() && gradient.in_memory.sizes() == value.in_memory.sizes() &&
         gradient.in_memory.scalar_type() == at::kFloat;
}

at::Tensor columns_of(const at::Tensor& matrix, const StackedUpdates::Part& part) {
  return ops::part(matrix, 1, part.begin, part.begin + part.b.rows());
}

}  // namespace

std::optional<StackedUpdates> stack_updates(const Experts& experts) {
  if (experts.size() < 2 || experts.front().empty() || experts.front().size() > kMostParts ||
      !are_alike(experts))
    return {};
  const LoraProjection& first = experts.front().front();
  StackedUpdates updates{.parts = {},
                         .a = listed_rows(experts, &LoraProjection::a),
                         .grad_a = {},
                         .scale = first.scale,
                         .reached = {}};
  if (!updates.a.defined() || !groups_operand(updates.a.in_memory)) return {};
  if (first.grad_a.defined()) updates.grad_a = listed_rows(experts, &LoraProjection::grad_a);
  if (!is_whole(updates.grad_a, updates.a, first.grad_a.defined())) return {};
  for (std::size_t i = 0; i < experts.front().size(); ++i) {
    const LoraProjection& p = experts.front()[i];
    StackedUpdates::Part part{
        .begin = p.out_begin, .b = listed(experts, i, &LoraProjection::b), .grad_b = {}};
    if (!part.b.defined() || !groups_operand(part.b.in_memory) || p.out_begin % 8 != 0 || p.out_end % 8 != 0)
      return {};
    if (p.grad_b.defined()) part.grad_b = listed(experts, i, &LoraProjection::grad_b);
    if (!is_whole(part.grad_b, part.b, p.grad_b.defined())) return {};
    updates.parts.push_back(std::move(part));
  }
  for (const auto& projections : experts) {
    for (const LoraProjection& p : projections) {
      if (p.reached != nullptr) updates.reached.push_back(p.reached);
    }
  }
  return updates;
}

at::Tensor grouped_lora_forward(at::Tensor& out, const at::Tensor& x, const Routing& routing,
                                const MatrixStack& matrices, const StackedUpdates& updates) {
  at::Tensor low_rank = at::empty({x.size(0), updates.a.rows()}, x.options());
  grouped_product(low_rank, x, updates.a, /*transposed=*/false, routing);
  std::vector<GroupedTerm> terms;
  std::int64_t rank = 0;
  for (const StackedUpdates::Part& part : updates.parts) {
    terms.push_back({ops::part(low_rank, 1, rank, rank + part.b.cols()), part.b, part.begin});
    rank += part.b.cols();
  }
  grouped_forward(out, x, routing, matrices, terms, updates.scale);
  return low_rank;
}

at::Tensor grouped_lora_backward(at::Tensor& dx, const at::Tensor& dy, const at::Tensor& low_rank,
                                 const Routing& routing, const MatrixStack& matrices,
                                 const StackedUpdates& updates) {
  at::Tensor gradient = at::empty_like(low_rank);
  std::int64_t rank = 0;
  for (const StackedUpdates::Part& part : updates.parts) {
    const std::int64_t end = rank + part.b.cols();
    const at::Tensor columns = columns_of(dy, part);
    grouped_product(ops::part(gradient, 1, rank, end), columns, part.b, /*transposed=*/true, routing);
    if (part.grad_b.defined())
      grouped_sums(part.grad_b, columns, ops::part(low_rank, 1, rank, end), updates.scale, routing);
    rank = end;
  }
  if (dx.defined()) grouped_backward(dx, dy, routing, matrices, {{gradient, updates.a}}, updates.scale);
  if (!updates.grad_a.defined()) {
    for (bool* reached : updates.reached) *reached = true;
  }
  return gradient;
}

void grouped_a_gradients(const at::Tensor& gradient, const at::Tensor& x, const Routing& routing,
                         const StackedUpdates& updates) {
  grouped_sums(updates.grad_a, gradient, x, updates.scale, routing);
  for (bool* reached : updates.reached) *reached = true;
}

}  // namespace lorikeet::ops
