#include <ATen/ATen.h>

#include "ops/causal_conv/causal_conv.h"
#include "ops/gated_conv/gated_conv.h"
#include "ops/wide.h"

namespace lorikeet::ops::reference {

at::Tensor gated_conv(const at::Tensor& projected, const at::Tensor& weight, const Sequences& sequences,
                      const at::Tensor& before) {
  const std::int64_t channels = weight.size(0);
  const at::ScalarType wide = wide_type(projected);
  const auto third = [&](std::int64_t i) { return projected.narrow(1, i * channels, channels).to(wide); };
  const at::Tensor u = (third(0) * third(2)).to(projected.scalar_type());
  return (third(1) * causal_sums(u, weight, sequences, before)).to(projected.scalar_type());
}

}  // namespace lorikeet::ops::reference
