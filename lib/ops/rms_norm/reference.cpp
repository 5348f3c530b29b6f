#include <ATen/ATen.h>

#include "ops/rms_norm/rms_norm.h"
#include "ops/wide.h"

namespace lorikeet::ops::reference {

at::Tensor rms_norm(const at::Tensor& x, const at::Tensor& weight, double eps, bool unit_offset) {
  const auto wide = wide_type(x);
  const auto values = x.to(wide);
  auto scale = weight.to(wide);
  if (unit_offset) scale = scale + 1;
  const auto mean_square = values.square().mean(/*dim=*/-1, /*keepdim=*/true);
  return (values * (mean_square + eps).rsqrt() * scale).to(x.scalar_type());
}

std::tuple<at::Tensor, at::Tensor> add_rms_norm(const at::Tensor& residual, const at::Tensor& delta,
                                                const at::Tensor& weight, double eps, bool unit_offset) {
  const auto sum = residual + delta;
  return {sum, rms_norm(sum, weight, eps, unit_offset)};
}

}  // namespace lorikeet::ops::reference
