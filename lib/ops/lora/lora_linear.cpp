#include "ops/lora/lora_linear.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <utility>

#include "ops/capability.h"
#include "ops/check.h"
#include "ops/cuda_launch.h"
#include "ops/in_place.h"
#include "ops/lora/low_rank_split.h"
#include "ops/low_rank_on_device.h"
#include "ops/matmul/matmul.h"
#include "ops/part.h"
#include "ops/wide.h"

namespace lorikeet::ops {
namespace {

constexpr const char* kOp = "lora_linear";

// `into`, or a new tensor like `like`, for a result of this shape.
at::Tensor result(at::IntArrayRef shape, const at::Tensor& like, const at::Tensor& into) {
  if (!into.defined()) return at::empty(shape, like.options());
  check_tensor(into.sizes() == shape && into.scalar_type() == like.scalar_type() && into.is_contiguous(), kOp,
               "a dense place of the result's shape and dtype", into);
  return into;
}

template <typename Part>
std::vector<at::Tensor> each(const std::vector<LoraProjection>& projections, Part LoraProjection::*part) {
  std::vector<at::Tensor> parts;
  parts.reserve(projections.size());
  for (const auto& p : projections) parts.push_back(p.*part);
  return parts;
}

at::Tensor stacked_a(const std::vector<LoraProjection>& projections) {
  const auto parts = each(projections, &LoraProjection::a);
  const auto in_place = rows_in_place(parts);
  return in_place.defined() ? in_place : at::cat(parts);
}

// All grad_a, of all ranks, as one matrix, where they lie so; else undefined.
at::Tensor stacked_grad_a(const std::vector<LoraProjection>& projections, std::int64_t ranks) {
  auto in_place = rows_in_place(each(projections, &LoraProjection::grad_a));
  return in_place.defined() && in_place.size(0) == ranks ? in_place : at::Tensor();
}

std::int64_t rank_of(const std::vector<LoraProjection>& projections) {
  std::int64_t rank = 0;
  for (const auto& p : projections) rank += p.a.size(0);
  return rank;
}

// The scale of all projections; 1 where they differ.
double common_scale(const std::vector<LoraProjection>& projections) {
  const double scale = projections.front().scale;
  for (const auto& p : projections) {
    if (p.scale != scale) return 1;
  }
  return scale;
}

// `terms`, or, where `left`'s reader takes them, none.
std::vector<LowRankTerm> unless_left(LeftTerms* left, const at::Tensor& product,
                                     std::vector<LowRankTerm> terms) {
  if (left == nullptr || !left->takes(product, terms)) return terms;
  left->terms = std::move(terms);
  return {};
}

// low_rank_gradients by the kernels that read dy once; undefined where they don't take it. For few rows
// ATen's products are as good.
at::Tensor gradients_in_one_pass(const at::Tensor& dy, const at::Tensor& low_rank,
                                 const std::vector<LoraProjection>& projections, double scale) {
  constexpr std::int64_t kLeastRows = 1024;
  if (dy.size(0) < kLeastRows || std::ssize(projections) > LowRankGradients::kMostProjections ||
      !has_cuda_elements(dy) || !at::isReducedFloatingType(dy.scalar_type()) ||
      !has_tensor_core_kernels(capability_of(dy)))
    return {};
  LowRankGradients in{.projections = static_cast<int>(projections.size()),
                      .tokens = dy.size(0),
                      .rank = projections.front().a.size(0),
                      .dy_row = dy.size(1),
                      .scale = scale};
  for (std::size_t i = 0; i < projections.size(); ++i) {
    const LoraProjection& p = projections[i];
    if (p.scale != scale || !p.grad_b.defined() || p.grad_b.scalar_type() != at::kFloat ||
        p.b.size(1) != in.rank || p.grad_b.size(1) != in.rank)
      return {};
    in.begin[i] = p.out_begin;
    in.width[i] = p.out_end - p.out_begin;
  }
  const auto b = rows_in_place(each(projections, &LoraProjection::b));
  auto grad_b = rows_in_place(each(projections, &LoraProjection::grad_b));
  if (!b.defined() || !grad_b.defined() || !low_rank_gradients_fit(in)) return {};
  for (const at::Tensor& operand : {dy, low_rank, b, grad_b}) {
    if (!operand.is_contiguous() || !is_aligned(operand)) return {};
  }
  auto gradient = at::empty_like(low_rank);
  const auto scratch = at::empty({low_rank_gradients_scratch(in)}, dy.options().dtype(at::kFloat));
  launch_on_device_of(dy, [&](void* stream) {
    in.dy = dy.const_data_ptr();
    in.u = low_rank.const_data_ptr();
    in.b = b.const_data_ptr();
    in.du = gradient.mutable_data_ptr();
    in.grad_b = grad_b.mutable_data_ptr<float>();
    launch_low_rank_gradients(cuda_element(dy), in, scratch.mutable_data_ptr<float>(), stream);
  });
  return gradient;
}

// The gradient of x a^T over `scale`, [T, sum of r]; adds those of every b on the way.
at::Tensor low_rank_gradients(const at::Tensor& dy, const at::Tensor& low_rank,
                              const std::vector<LoraProjection>& projections, double scale) {
  if (auto gradient = gradients_in_one_pass(dy, low_rank, projections, scale); gradient.defined())
    return gradient;
  auto gradient = at::empty({dy.size(0), low_rank.size(1)}, dy.options().dtype(product_type(dy)));
  std::int64_t at = 0;
  for (const auto& p : projections) {
    const auto columns = part(dy, 1, p.out_begin, p.out_end);
    const auto r = p.a.size(0);
    auto of_projection = part(gradient, 1, at, at + r);
    matmul_nn_out(of_projection, columns, p.b);
    if (p.scale != scale) of_projection.mul_(p.scale);
    if (p.grad_b.defined()) {
      auto grad_b = p.grad_b;
      matmul_tn_add(grad_b, columns, part(low_rank, 1, at, at + grad_b.size(1)), p.scale);
    }
    at += r;
  }
  return gradient;
}

// `gradient` is over `scale`.
void input_gradient_out(at::Tensor& dx, const at::Tensor& dy, const at::Tensor& gradient, double scale,
                        const FrozenMatrix& weight, const std::vector<LoraProjection>& projections,
                        const std::optional<LoraDropout>& dropout, LeftTerms* left) {
  const auto a = stacked_a(projections);
  if (!dropout.has_value()) {
    weight.format->backward(dx, dy, weight, unless_left(left, dx, {{gradient, a, 0, scale}}));
    if (left != nullptr && !left->terms.empty())
      left->right_gradient = stacked_grad_a(projections, gradient.size(1));
    return;
  }
  weight.format->backward(dx, dy, weight, {});
  const auto update = apply_dropout(matmul_nn(gradient, a), *dropout);
  if (update.scalar_type() == dx.scalar_type()) {
    dx.add_(update, scale);
  } else {
    dx.copy_(dx.to(update.scalar_type()).add_(update, scale));
  }
}

void mark_reached(const std::vector<LoraProjection>& projections) {
  for (const auto& p : projections) {
    if (p.reached != nullptr) *p.reached = true;
  }
}

void check_linear(const at::Tensor& x, const FrozenMatrix& weight, const at::Tensor& bias) {
  check_tensor(x.defined() && x.dim() == 2 && x.size(1) == weight.cols && x.is_floating_point(), kOp,
               "a floating input [tokens, in] as wide as the weight", x);
  check(weight.bytes.device() == x.device(), kOp, "a weight on the input's device",
        [&] { return describe(weight.bytes) + " for " + describe(x); });
  check_tensor(!bias.defined() || (bias.dim() == 1 && bias.size(0) == weight.rows), kOp,
               "a bias as long as the weight has rows", bias);
}

}  // namespace

void check_projections(const char* op, const std::vector<LoraProjection>& projections, std::int64_t in,
                       std::int64_t out, at::ScalarType dtype) {
  std::int64_t done = 0;
  for (const auto& p : projections) {
    check(p.out_begin >= done && p.out_begin <= p.out_end && p.out_end <= out, op,
          "column ranges in ascending order inside the output", [&] {
            return "[" + std::to_string(p.out_begin) + ", " + std::to_string(p.out_end) + ") of " +
                   std::to_string(out);
          });
    check_tensor(p.a.defined() && p.a.dim() == 2 && p.a.size(1) == in && p.a.scalar_type() == dtype, op,
                 "lora a [r, in] of the input's dtype", p.a);
    check_tensor(p.b.defined() && p.b.dim() == 2 && p.b.size(0) == p.out_end - p.out_begin &&
                     p.b.size(1) == p.a.size(0) && p.b.scalar_type() == dtype,
                 op, "lora b [out, r] of the input's dtype", p.b);
    const auto check_gradient = [&](const at::Tensor& grad, const at::Tensor& value, std::int64_t ranks) {
      check_tensor(
          !grad.defined() || (grad.dim() == 2 && grad.size(ranks) <= value.size(ranks) &&
                              grad.size(1 - ranks) == value.size(1 - ranks) && grad.is_floating_point()),
          op, "a floating gradient of its parameter's shape, or of its first ranks", grad);
    };
    check_gradient(p.grad_a, p.a, /*ranks=*/0);
    check_gradient(p.grad_b, p.b, /*ranks=*/1);
    done = p.out_end;
  }
}

at::Tensor lora_linear(const at::Tensor& x, const FrozenMatrix& weight, const at::Tensor& bias,
                       const std::vector<LoraProjection>& projections,
                       const std::optional<LoraDropout>& dropout, at::Tensor* low_rank, LeftTerms* left,
                       const at::Tensor& into) {
  check_linear(x, weight, bias);
  check_projections(kOp, projections, weight.cols, weight.rows, x.scalar_type());
  auto out = result({x.size(0), weight.rows}, x, into);
  if (x.size(0) == 0) {  // no weight need be decoded
    if (low_rank != nullptr)
      *low_rank = at::empty({0, rank_of(projections)}, x.options().dtype(product_type(x)));
    return out;
  }
  if (projections.empty()) {
    weight.format->forward(out, x, weight, {}, bias);
    return out;
  }
  // What stays is allocated before scratch: on a CPU the heap would be left with holes otherwise.
  const auto a = stacked_a(projections);
  auto xa = at::empty({x.size(0), a.size(0)}, x.options().dtype(product_type(x)));
  const auto input = matmul_operand(x);
  matmul_nt_out(xa, dropout.has_value() ? matmul_operand(apply_dropout(x, *dropout)) : input, a);
  weight.format->forward(out, input, weight, unless_left(left, out, low_rank_terms(xa, projections)), bias);
  if (low_rank != nullptr) *low_rank = std::move(xa);
  return out;
}

std::vector<LowRankTerm> low_rank_terms(const at::Tensor& low_rank,
                                        const std::vector<LoraProjection>& projections) {
  std::vector<LowRankTerm> terms;
  terms.reserve(projections.size());
  std::int64_t at = 0;
  for (const auto& p : projections) {
    terms.push_back({part(low_rank, 1, at, at + p.a.size(0)), p.b, p.out_begin, p.scale});
    at += p.a.size(0);
  }
  return terms;
}

LoraLinearGradients lora_linear_backward(const at::Tensor& dy, const at::Tensor& low_rank,
                                         const FrozenMatrix& weight, std::vector<LoraProjection> projections,
                                         const std::optional<LoraDropout>& dropout, bool input_gradient,
                                         LeftTerms* left, const at::Tensor& into) {
  LoraLinearGradients out;
  if (input_gradient) out.dx = result({dy.size(0), weight.cols}, dy, into);  // outlives what follows
  if (dy.size(0) == 0) {
    mark_reached(projections);
    return out;
  }
  if (projections.empty()) {
    if (input_gradient) weight.format->backward(out.dx, dy.contiguous(), weight, {});
    return out;
  }
  const double scale = common_scale(projections);
  const auto operand = matmul_operand(dy.contiguous());
  auto gradient = low_rank_gradients(operand, low_rank, projections, scale);
  if (input_gradient)
    input_gradient_out(out.dx, operand, gradient, scale, weight, projections, dropout, left);
  if (std::any_of(projections.begin(), projections.end(), [](const auto& p) { return p.grad_a.defined(); })) {
    out.low_rank = std::move(gradient);
    out.projections = std::move(projections);
  } else {
    mark_reached(projections);
  }
  return out;
}

void add_a_gradients(const LoraLinearGradients& gradients, const at::Tensor& x,
                     const std::optional<LoraDropout>& dropout) {
  const std::vector<LoraProjection>& projections = gradients.projections;
  const double scale = common_scale(projections);
  const at::Tensor input = dropout.has_value() ? apply_dropout(x, *dropout) : x;
  if (auto in_place = stacked_grad_a(projections, gradients.low_rank.size(1)); in_place.defined()) {
    matmul_tn_add(in_place, gradients.low_rank, input, scale);
  } else {
    const auto all = matmul_tn(gradients.low_rank, input);
    std::int64_t at = 0;
    for (const auto& p : projections) {
      if (p.grad_a.defined()) p.grad_a.add_(all.slice(0, at, at + p.grad_a.size(0)), scale);
      at += p.a.size(0);
    }
  }
  a_gradients_added(gradients);
}

void a_gradients_added(const LoraLinearGradients& gradients) { mark_reached(gradients.projections); }

at::Tensor lora_linear_backward(const at::Tensor& dy, const at::Tensor& x, const at::Tensor& low_rank,
                                const FrozenMatrix& weight, const std::vector<LoraProjection>& projections,
                                const std::optional<LoraDropout>& dropout, bool input_gradient) {
  const auto gradients = lora_linear_backward(dy, low_rank, weight, projections, dropout, input_gradient);
  if (gradients.want_input()) add_a_gradients(gradients, x, dropout);
  return gradients.dx;
}

}  // namespace lorikeet::ops
