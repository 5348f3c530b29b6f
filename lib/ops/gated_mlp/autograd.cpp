#include <torch/torch.h>

#include "ops/gated_mlp/gated_mlp.h"

namespace lorikeet::ops {

at::Tensor gated_activation(const at::Tensor& gate_up, Activation activation) {
  return reference::gated_activation(gate_up, activation);
}

}  // namespace lorikeet::ops
