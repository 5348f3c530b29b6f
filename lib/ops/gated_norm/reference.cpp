#include <ATen/ATen.h>

#include "ops/gated_norm/gated_norm.h"
#include "ops/wide.h"

namespace lorikeet::ops::reference {

at::Tensor gated_norm(const at::Tensor& x, const at::Tensor& z, const at::Tensor& weight, double eps) {
  const at::ScalarType wide = wide_type(x);
  const at::Tensor heads = x.to(wide).unflatten(1, {-1, weight.numel()});
  const at::Tensor normed = heads * at::rsqrt((heads * heads).mean(-1, /*keepdim=*/true) + eps);
  const at::Tensor gate = z.to(wide);
  // Not at::silu, whose backward takes more memory in a dry run than in a real one.
  const at::Tensor silu = gate * gate.sigmoid();
  return ((normed * weight.to(wide)).flatten(1) * silu).to(x.scalar_type());
}

}  // namespace lorikeet::ops::reference
