#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>
#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/functions/utils.h>
#include <torch/csrc/autograd/saved_variable.h>

#include <utility>

#include "ops/check.h"
#include "ops/lora/lora_linear.h"
#include "ops/matmul/matmul.h"
#include "ops/node.h"
#include "ops/wide.h"

namespace lorikeet::ops {
namespace {

using torch::autograd::SavedVariable;
using torch::autograd::variable_list;

constexpr const char* kOp = "lora_linear";

at::Tensor stacked_a(const std::vector<LoraProjection>& projections) {
  if (projections.size() == 1) return projections[0].a.detach();
  std::vector<at::Tensor> parts;
  parts.reserve(projections.size());
  for (const auto& p : projections) parts.push_back(p.a.detach());
  return at::cat(parts);
}

bool wants_adapter_gradients(const std::vector<LoraProjection>& projections) {
  return std::any_of(projections.begin(), projections.end(),
                     [](const auto& p) { return p.grad_a.defined() || p.grad_b.defined(); });
}

// dy w, and no more: a frozen product's gradient.
class FrozenBackward : public torch::autograd::Node {
 public:
  std::string name() const override { return "FrozenLinearBackward"; }

  variable_list apply(variable_list&& grads) override {
    if (!grads[0].defined() || !task_should_compute_output(0)) return {at::Tensor()};
    const at::NoGradGuard no_grad;
    const auto lease = weight->lease();
    return {matmul_nn(grads[0].contiguous(), lease.tensor())};
  }

  std::shared_ptr<const FrozenWeight> weight;
};

// Keeps the input and x a^T; weights are borrowed again.
class LoraBackward : public torch::autograd::Node {
 public:
  std::string name() const override { return "LoraLinearBackward"; }

  variable_list apply(variable_list&& grads) override {
    variable_list result(num_outputs());
    if (!grads[0].defined()) return result;
    const at::NoGradGuard no_grad;
    at::Tensor dx;  // first: it outlives what follows
    if (task_should_compute_output(0)) dx = at::empty({grads[0].size(0), weight->cols()}, grads[0].options());
    const auto dy = matmul_operand(grads[0].contiguous());
    const auto a = stacked_a(projections);
    const auto low = low_rank_gradients(dy, a.size(0));
    if (wants_adapter_gradients(projections)) add_a_gradients(low);
    for (const auto& p : projections) {
      if (p.reached != nullptr) *p.reached = true;
    }
    if (dx.defined()) {
      write_input_gradient(dx, dy, low, a);
      result[0] = dx;
    }
    return result;
  }

  void release_variables() override {
    x.reset_data();
    xa.reset_data();
  }

  SavedVariable x, xa;
  std::shared_ptr<const FrozenWeight> weight;
  std::vector<LoraProjection> projections;
  std::optional<LoraDropout> dropout;

 private:
  // The gradient of x a^T, [T, sum r]; adds those of every b on the way.
  at::Tensor low_rank_gradients(const at::Tensor& dy, std::int64_t rank) {
    auto low = at::empty({dy.size(0), rank}, dy.options());
    const auto saved = xa.unpack(shared_from_this());
    std::int64_t at = 0;
    for (auto& p : projections) {
      const auto columns = dy.slice(1, p.out_begin, p.out_end);
      const auto r = p.a.size(0);
      auto part = low.slice(1, at, at + r);
      matmul_nn_out(part, columns, p.b.detach());
      if (p.scale != 1) part.mul_(p.scale);
      if (p.grad_b.defined()) matmul_tn_add(p.grad_b, columns, saved.slice(1, at, at + r), p.scale);
      at += r;
    }
    return low;
  }

  void add_a_gradients(const at::Tensor& low) {
    auto input = x.unpack(shared_from_this()).detach();
    if (dropout.has_value()) input = apply_dropout(input, *dropout);
    const auto all = matmul_tn(low, input);
    std::int64_t at = 0;
    for (auto& p : projections) {
      const auto r = p.a.size(0);
      if (p.grad_a.defined()) p.grad_a.add_(all.slice(0, at, at + r));
      at += r;
    }
  }

  void write_input_gradient(at::Tensor& dx, const at::Tensor& dy, const at::Tensor& low,
                            const at::Tensor& a) {
    const auto lease = weight->lease();
    if (!dropout.has_value()) {
      matmul_nn_out(dx, dy, lease.tensor(), {{low, a, 0}});
      return;
    }
    matmul_nn_out(dx, dy, lease.tensor());
    dx.add_(apply_dropout(matmul_nn(low, a), *dropout));
  }
};

void check_linear(const char* op, const at::Tensor& x, const FrozenWeight& weight, const WeightLease& lease,
                  const at::Tensor& bias) {
  check_tensor(x.defined() && x.dim() == 2 && x.size(1) == weight.cols(), op,
               "an input [tokens, in] as wide as the weight", x);
  check(lease.tensor().scalar_type() == x.scalar_type() && lease.tensor().device() == x.device(), op,
        "a weight of the input's dtype on its device",
        [&] { return describe(lease.tensor()) + " for " + describe(x); });
  check_tensor(!bias.defined() || (bias.dim() == 1 && bias.size(0) == weight.rows()), op,
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
    for (const auto& [grad, value] : {std::pair{&p.grad_a, &p.a}, std::pair{&p.grad_b, &p.b}}) {
      check_tensor(
          !grad->defined() || (grad->sizes() == value->sizes() && at::isFloatingType(grad->scalar_type())),
          op, "a floating gradient of its parameter's shape", *grad);
    }
    done = p.out_end;
  }
}

at::Tensor frozen_linear(const at::Tensor& x, const std::shared_ptr<const FrozenWeight>& weight,
                         const at::Tensor& bias) {
  std::shared_ptr<FrozenBackward> node;
  if (needs_graph(x)) {
    node = make_node<FrozenBackward>(x);
    node->weight = weight;
  }
  at::Tensor out;
  {
    const at::NoGradGuard no_grad;
    const auto lease = weight->lease();
    check_linear("frozen_linear", x, *weight, lease, bias);
    out = at::empty({x.size(0), weight->rows()}, x.options());
    matmul_nt_out(out, x.detach(), lease.tensor(), {}, bias);
  }
  if (node) torch::autograd::set_history(out, node);
  return out;
}

at::Tensor lora_linear(const at::Tensor& x, const std::shared_ptr<const FrozenWeight>& weight,
                       const at::Tensor& bias, const std::vector<LoraProjection>& projections,
                       const std::optional<LoraDropout>& dropout, const at::Tensor& anchor) {
  if (projections.empty()) return frozen_linear(x, weight, bias);
  std::shared_ptr<LoraBackward> node;
  if (needs_graph(x, anchor)) {
    node = make_node<LoraBackward>(x, anchor);
    node->weight = weight;
    node->projections = projections;
    node->dropout = dropout;
  }
  at::Tensor out, xa;
  {
    const at::NoGradGuard no_grad;
    const auto lease = weight->lease();
    check_linear(kOp, x, *weight, lease, bias);
    check_projections(kOp, projections, weight->cols(), weight->rows(), x.scalar_type());
    // What stays is allocated before what goes: on a CPU the heap would be left with holes otherwise.
    const auto a = stacked_a(projections);
    const auto low_rank = multiplies_natively(x.scalar_type(), x.device()) ? x.scalar_type() : wide_type(x);
    out = at::empty({x.size(0), weight->rows()}, x.options());
    xa = at::empty({x.size(0), a.size(0)}, x.options().dtype(low_rank));
    const auto input = matmul_operand(x.detach());
    matmul_nt_out(xa, dropout.has_value() ? matmul_operand(apply_dropout(x, *dropout)) : input, a);
    std::vector<LowRankTerm> terms;
    std::int64_t at = 0;
    for (const auto& p : projections) {
      const auto part = xa.slice(1, at, at + p.a.size(0));
      terms.push_back({p.scale == 1 ? part : part * p.scale, p.b.detach(), p.out_begin});
      at += p.a.size(0);
    }
    matmul_nt_out(out, input, lease.tensor(), terms, bias);
  }
  if (node) {
    if (wants_adapter_gradients(projections)) node->x = SavedVariable(x, /*is_output=*/false);
    node->xa = SavedVariable(xa, /*is_output=*/false);
    torch::autograd::set_history(out, node);
  }
  return out;
}

}  // namespace lorikeet::ops
