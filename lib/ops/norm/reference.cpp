#include <ATen/ATen.h>

#include "ops/norm/norm.h"
#include "ops/wide.h"

namespace lorikeet::ops::reference {

at::Tensor norm(const at::Tensor& x, const NormParameters& parameters, const NormOptions& options) {
  const auto wide = wide_type(x);
  auto values = x.to(wide);
  if (options.kind == NormKind::kLayer) values = values - values.mean(/*dim=*/-1, /*keepdim=*/true);
  auto scale = parameters.weight.to(wide);
  if (options.unit_offset) scale = scale + 1;
  const auto mean_square = values.square().mean(/*dim=*/-1, /*keepdim=*/true);
  auto y = values * (mean_square + options.eps).rsqrt() * scale;
  if (parameters.bias.defined()) y = y + parameters.bias.to(wide);
  return y.to(x.scalar_type());
}

}  // namespace lorikeet::ops::reference
