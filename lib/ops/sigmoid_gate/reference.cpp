#include <ATen/ATen.h>

#include "ops/sigmoid_gate/sigmoid_gate.h"
#include "ops/wide.h"

namespace lorikeet::ops::reference {

at::Tensor sigmoid_gate(const at::Tensor& x, const at::Tensor& gate) {
  const at::ScalarType wide = wide_type(x);
  return (x.to(wide) * gate.to(wide).sigmoid()).to(x.scalar_type());
}

}  // namespace lorikeet::ops::reference
