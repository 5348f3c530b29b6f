#include "ops/rotary/rotary.h"

#include <ATen/ATen.h>

#include "ops/check.h"
#include "ops/cuda_launch.h"
#include "ops/rotary/cpu.h"
#include "ops/rotary/rotary_cuda.h"
#include "ops/vector.h"

namespace lorikeet::ops {

void rotate(at::Tensor& qkv, const at::Tensor& cos, const at::Tensor& sin, const HeadLayout& layout,
            bool inverse) {
  constexpr const char* kOp = "rotate";
  check_tensor(qkv.defined() && qkv.dim() == 2 && qkv.size(1) == layout.width() && qkv.is_floating_point() &&
                   qkv.is_contiguous(),
               kOp, "a dense floating matrix [tokens, (heads + 2 kv_heads) * head_dim]", qkv);
  check(cos.defined() && sin.defined() && cos.dim() == 2 && cos.sizes() == sin.sizes() &&
            cos.size(0) == qkv.size(0) && 2 * cos.size(1) <= layout.head_dim,
        kOp, "cos and sin [tokens, at most half of head_dim]",
        [&] { return describe(cos) + " and " + describe(sin); });
  const bool on_cuda = has_cuda_elements(qkv);
  if (!on_cuda && !vector::is_fast(qkv)) {
    qkv.copy_(reference::rotary(qkv, cos, inverse ? -sin : sin, layout));
    return;
  }
  const at::Tensor c = cos.to(at::kFloat).contiguous(), s = sin.to(at::kFloat).contiguous();
  if (!on_cuda) {
    cpu::rotate(qkv, c, s, layout, inverse);
    return;
  }
  launch_on_device_of(qkv, [&](void* stream) {
    launch_rotary(cuda_element(qkv), qkv.mutable_data_ptr(), c.const_data_ptr<float>(),
                  s.const_data_ptr<float>(), qkv.size(0), layout, c.size(1), inverse, stream);
  });
}

}  // namespace lorikeet::ops
