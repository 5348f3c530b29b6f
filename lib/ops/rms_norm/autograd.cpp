#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>
#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/functions/utils.h>
#include <torch/csrc/autograd/saved_variable.h>

#include <utility>

#include "ops/check.h"
#include "ops/node.h"
#include "ops/rms_norm/cpu.h"
#include "ops/rms_norm/rms_norm.h"
#include "ops/vector.h"

namespace lorikeet::ops {
namespace {

using torch::autograd::SavedVariable;
using torch::autograd::variable_list;

// Keeps the normed input and one fp32 a row. Outputs (normed) or (sum, normed); inputs (x) or (residual,
// delta), which get the same gradient.
class RmsNormBackward : public torch::autograd::Node {
 public:
  std::string name() const override { return "RmsNormBackward"; }

  variable_list apply(variable_list&& grads) override {
    const at::NoGradGuard no_grad;
    const auto& normed = grads.back();
    const auto extra = grads.size() == 2 && grads[0].defined() ? grads[0].contiguous() : at::Tensor();
    auto dx = extra;
    if (normed.defined()) {
      const auto input = x.unpack(shared_from_this());
      dx = at::empty(input.sizes(), input.options().requires_grad(false));
      cpu::rms_norm_backward(normed.contiguous(), extra, input, weight, rstd, dx);
    }
    return variable_list(num_outputs(), dx);
  }

  void release_variables() override { x.reset_data(); }

  SavedVariable x;
  at::Tensor weight, rstd;  // fp32, neither part of any graph
};

void check_input(const at::Tensor& x, const at::Tensor& weight) {
  check_tensor(x.defined() && x.dim() == 2 && x.is_floating_point(), "rms_norm",
               "a floating matrix [tokens, width]", x);
  check(weight.defined() && weight.dim() == 1 && weight.size(0) == x.size(1) && weight.is_floating_point(),
        "rms_norm", "a floating weight as long as the rows",
        [&] { return describe(weight) + " for " + describe(x); });
}

at::Tensor effective_weight(const at::Tensor& weight, bool unit_offset) {
  const auto wide = weight.detach().to(at::kFloat).contiguous();
  return unit_offset ? wide + 1 : wide;
}

}  // namespace

at::Tensor rms_norm(const at::Tensor& x, const at::Tensor& weight, double eps, bool unit_offset) {
  check_input(x, weight);
  if (!vector::is_fast(x)) return reference::rms_norm(x, weight, eps, unit_offset);
  auto y = at::empty(x.sizes(), x.options().requires_grad(false));
  auto rstd = at::empty({x.size(0)}, y.options().dtype(at::kFloat));
  at::Tensor sum, w;
  {
    const at::NoGradGuard no_grad;
    w = effective_weight(weight, unit_offset);
    cpu::rms_norm_forward(x, {}, w, eps, sum, y, rstd);
  }
  if (needs_graph(x)) {
    auto node = make_node<RmsNormBackward>(x);
    node->x = SavedVariable(x, /*is_output=*/false);
    node->weight = std::move(w);
    node->rstd = std::move(rstd);
    torch::autograd::set_history(y, node);
  }
  return y;
}

std::tuple<at::Tensor, at::Tensor> add_rms_norm(const at::Tensor& residual, const at::Tensor& delta,
                                                const at::Tensor& weight, double eps, bool unit_offset) {
  check_input(residual, weight);
  check(delta.defined() && delta.sizes() == residual.sizes() && delta.scalar_type() == residual.scalar_type(),
        "add_rms_norm", "residual and delta of one shape and dtype",
        [&] { return describe(residual) + " and " + describe(delta); });
  if (!vector::is_fast(residual) || !vector::is_fast(delta)) {
    return reference::add_rms_norm(residual, delta, weight, eps, unit_offset);
  }
  auto sum = at::empty(residual.sizes(), residual.options().requires_grad(false));
  auto y = at::empty_like(sum);
  auto rstd = at::empty({residual.size(0)}, y.options().dtype(at::kFloat));
  at::Tensor w;
  {
    const at::NoGradGuard no_grad;
    w = effective_weight(weight, unit_offset);
    cpu::rms_norm_forward(residual, delta, w, eps, sum, y, rstd);
  }
  if (needs_graph(residual, delta)) {
    auto node = make_node<RmsNormBackward>(residual, delta);
    node->weight = std::move(w);
    node->rstd = std::move(rstd);
    torch::autograd::set_history(std::vector<at::Tensor>{sum, y}, node);
    node->x = SavedVariable(sum, /*is_output=*/true);
  }
  return {sum, y};
}

}  // namespace lorikeet::ops
