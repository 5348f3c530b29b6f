#include <torch/torch.h>

#include "ops/rms_norm/rms_norm.h"

namespace lorikeet::ops {

at::Tensor rms_norm(const at::Tensor& x, const at::Tensor& weight, double eps, bool unit_offset) {
  return reference::rms_norm(x, weight, eps, unit_offset);
}

std::tuple<at::Tensor, at::Tensor> add_rms_norm(const at::Tensor& residual, const at::Tensor& delta,
                                                const at::Tensor& weight, double eps, bool unit_offset) {
  return reference::add_rms_norm(residual, delta, weight, eps, unit_offset);
}

}  // namespace lorikeet::ops
