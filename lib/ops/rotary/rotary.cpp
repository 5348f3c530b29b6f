#include "ops/rotary/rotary.h"

#include <ATen/ATen.h>

#include "ops/check.h"
#include "ops/cuda_launch.h"
#include "ops/rotary/cpu.h"
#include "ops/rotary/rotary_cuda.h"
#include "ops/vector.h"

namespace lorikeet::ops {
namespace {

constexpr const char* kOp = "rotate";

void check_angles(const at::Tensor& cos, const at::Tensor& sin, std::int64_t tokens,
                  const HeadLayout& layout) {
  check(cos.defined() && sin.defined() && cos.dim() == 2 && cos.sizes() == sin.sizes() &&
            cos.size(0) == tokens && 2 * cos.size(1) <= layout.head_dim,
        kOp, "cos and sin [tokens, at most half of head_dim]",
        [&] { return describe(cos) + " and " + describe(sin); });
}

// Angles as kernels read them.
at::Tensor dense_floats(const at::Tensor& angles) { return angles.to(at::kFloat).contiguous(); }

// `inverse`: back by the angles.
void rotate_in_place(at::Tensor& qkv, const at::Tensor& cos, const at::Tensor& sin, const HeadLayout& layout,
                     bool inverse) {
  check_tensor(qkv.defined() && qkv.dim() == 2 && qkv.size(1) == layout.width() && qkv.is_floating_point() &&
                   qkv.is_contiguous(),
               kOp, "a dense floating matrix [tokens, (heads + 2 kv_heads) * head_dim]", qkv);
  check_angles(cos, sin, qkv.size(0), layout);
  const bool on_cuda = has_cuda_elements(qkv);
  if (!on_cuda && !vector::is_fast(qkv)) {
    qkv.copy_(reference::rotary(qkv, cos, inverse ? -sin : sin, layout));
    return;
  }
  const at::Tensor c = dense_floats(cos), s = dense_floats(sin);
  if (!on_cuda) {
    cpu::rotate(qkv, c, s, layout, inverse);
    return;
  }
  launch_on_device_of(qkv, [&](void* stream) {
    launch_rotary(cuda_element(qkv), qkv.mutable_data_ptr(), c.const_data_ptr<float>(),
                  s.const_data_ptr<float>(), qkv.size(0), layout, c.size(1), inverse, stream);
  });
}

}  // namespace

void rotate(at::Tensor& qkv, const at::Tensor& cos, const at::Tensor& sin, const HeadLayout& layout) {
  rotate_in_place(qkv, cos, sin, layout, /*inverse=*/false);
}

at::Tensor rotate_backward(const HeadGradients& gradients, const at::Tensor& cos, const at::Tensor& sin,
                           const HeadLayout& layout) {
  // Three tensors are packed and rotated in one pass over memory.
  if (gradients.packed.defined() || !has_cuda_elements(gradients.q) || layout.head_dim % 2 != 0) {
    at::Tensor packed = pack(gradients);
    rotate_in_place(packed, cos, sin, layout, /*inverse=*/true);
    return packed;
  }
  const std::int64_t tokens = gradients.q.size(0);
  check_angles(cos, sin, tokens, layout);
  const at::Tensor c = dense_floats(cos), s = dense_floats(sin);
  at::Tensor packed = at::empty({tokens, layout.width()}, gradients.q.options());
  launch_on_device_of(packed, [&](void* stream) {
    launch_rotary_backward(cuda_element(packed), on_device(gradients), c.const_data_ptr<float>(),
                           s.const_data_ptr<float>(), tokens, layout, c.size(1), packed.mutable_data_ptr(),
                           stream);
  });
  return packed;
}

}  // namespace lorikeet::ops
