#include "nn/backward_signal.h"

#include <ATen/ATen.h>
#include <torch/csrc/autograd/function.h>

#include "ops/node.h"

namespace lorikeet::nn {
namespace {

using torch::autograd::variable_list;

class SignalBackward : public torch::autograd::Node {
 public:
  std::string name() const override { return "SignalBackward"; }

  variable_list apply(variable_list&& grads) override {
    reached();
    return {std::move(grads[0])};
  }

  std::function<void()> reached;
};

}  // namespace

at::Tensor signal_backward(const at::Tensor& x, std::function<void()> reached) {
  if (!ops::needs_graph(x)) return x;
  auto node = ops::make_node<SignalBackward>(x);
  node->reached = std::move(reached);
  at::Tensor out = x.detach();
  torch::autograd::set_history(out, node);
  return out;
}

}  // namespace lorikeet::nn
