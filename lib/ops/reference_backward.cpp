#include "ops/reference_backward.h"

#include <ATen/core/grad_mode.h>
#include <torch/csrc/autograd/autograd.h>

#include "ops/autograd.h"

namespace lorikeet::ops {

at::Tensor reference_backward(const std::function<at::Tensor(const at::Tensor& x)>& f, const at::Tensor& x,
                              const at::Tensor& upstream) {
  const WithAutograd through_autograd;
  const at::AutoGradMode with_graph(true);
  const auto leaf = x.detach().requires_grad_(true);
  const auto out = f(leaf);
  if (out.numel() == 0) return x.detach().clone();
  return torch::autograd::grad({out}, {leaf}, {upstream})[0];
}

}  // namespace lorikeet::ops
