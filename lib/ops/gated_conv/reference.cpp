#include <ATen/ATen.h>

#include "ops/causal_conv/causal_conv.h"
#include "ops/gated_conv/gated_conv.h"
#include "ops/wide.h"

namespace lorikeet::ops::reference {

at::Tensor gated_conv(const at::Tensor& projected, const at::Tensor& weight, const Sequences& sequences,
                      const at::Tensor& before) {
  // One split, whose gradient is one tensor: a dry run adds up gradients of several views in more memory.
  const std::vector<at::Tensor> parts = projected.to(wide_type(projected)).chunk(3, 1);
  const at::Tensor u = (parts[0] * parts[2]).to(projected.scalar_type());
  return (parts[1] * causal_sums(u, weight, sequences, before)).to(projected.scalar_type());
}

}  // namespace lorikeet::ops::reference
