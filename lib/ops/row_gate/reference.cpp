#include <ATen/ATen.h>

#include "ops/row_gate/row_gate.h"
#include "ops/wide.h"

namespace lorikeet::ops::reference {

at::Tensor row_gate(const at::Tensor& x, const at::Tensor& gate) {
  const at::ScalarType wide = wide_type(x);
  return (x.to(wide) * gate.to(wide).sigmoid()).to(x.scalar_type());
}

}  // namespace lorikeet::ops::reference
