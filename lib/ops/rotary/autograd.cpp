#include <torch/torch.h>

#include "ops/rotary/rotary.h"

namespace lorikeet::ops {

at::Tensor rotary(at::Tensor qkv, const at::Tensor& cos, const at::Tensor& sin, const HeadLayout& layout) {
  return reference::rotary(qkv, cos, sin, layout);
}

}  // namespace lorikeet::ops
