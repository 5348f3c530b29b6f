#pragma once

#include <ATen/core/grad_mode.h>
#include <torch/csrc/autograd/custom_function.h>

#include <functional>
#include <memory>

namespace lorikeet::test {

/// An operator's pair as one function that libtorch's autograd differentiates: `run` computes the result of
/// x, and leaves behind the function that makes x's gradient of the result's.
using Backward = std::function<at::Tensor(const at::Tensor& dy)>;
using Forward = std::function<at::Tensor(const at::Tensor& x, Backward& backward)>;

namespace detail {

struct Held : torch::CustomClassHolder {
  Forward forward;
  Backward backward;
};

struct Pair : torch::autograd::Function<Pair> {
  static at::Tensor forward(torch::autograd::AutogradContext* context, const at::Tensor& x,
                            const c10::intrusive_ptr<Held>& held) {
    context->saved_data["held"] = c10::IValue::make_capsule(held);
    const at::NoGradGuard no_grad;
    return held->forward(x.detach(), held->backward);
  }

  static torch::autograd::variable_list backward(torch::autograd::AutogradContext* context,
                                                 torch::autograd::variable_list gradients) {
    const auto held = c10::static_intrusive_pointer_cast<Held>(context->saved_data["held"].toCapsule());
    const at::NoGradGuard no_grad;
    return {held->backward(gradients[0]), at::Tensor()};
  }
};

}  // namespace detail

/// The result of `forward`, for tests and benchmarks that hold a pair against autograd of its reference.
inline at::Tensor as_autograd(const at::Tensor& x, Forward forward) {
  auto held = c10::make_intrusive<detail::Held>();
  held->forward = std::move(forward);
  return detail::Pair::apply(x, held);
}

}  // namespace lorikeet::test
