#include <ATen/ATen.h>

#include "ops/norm_of_gated/norm_of_gated.h"
#include "ops/wide.h"

namespace lorikeet::ops::reference {

at::Tensor norm_of_gated(const at::Tensor& x, const at::Tensor& z, const at::Tensor& weight,
                         std::int64_t groups, double eps) {
  const at::ScalarType wide = wide_type(x);
  const at::Tensor gate = z.to(wide);
  // Not at::silu, whose backward takes more memory in a dry run than in a real one.
  const at::Tensor gated = (x.to(wide) * gate * gate.sigmoid()).unflatten(1, {groups, -1});
  const at::Tensor normed = gated * at::rsqrt((gated * gated).mean(-1, /*keepdim=*/true) + eps);
  return (normed.flatten(1) * weight.to(wide)).to(x.scalar_type());
}

}  // namespace lorikeet::ops::reference
