#pragma once

#include <ATen/core/Tensor.h>

#include <functional>
#include <vector>

namespace lorikeet::ops {

/// The gradient of sum(f(x) * upstream) with respect to x: computes f again under a graph of its own, which
/// ends with the call. For operators on devices and dtypes that have no kernel of ours.
/// f: differentiable; upstream: of f's shape.
at::Tensor reference_backward(const std::function<at::Tensor(const at::Tensor& x)>& f, const at::Tensor& x,
                              const at::Tensor& upstream);

}  // namespace lorikeet::ops
