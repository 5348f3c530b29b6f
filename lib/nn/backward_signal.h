#pragma once

#include <ATen/core/Tensor.h>

#include <functional>

namespace lorikeet::nn {

/// `x` itself; in backward `reached` is called once its gradient is complete: when all that was computed from
/// x has been gone through. Does nothing where x needs no gradient. The callback runs on the thread of
/// backward.
at::Tensor signal_backward(const at::Tensor& x, std::function<void()> reached);

}  // namespace lorikeet::nn
