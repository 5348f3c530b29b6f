#include "ops/latent_heads/latent_heads.h"

#include <ATen/ATen.h>

#include "ops/check.h"
#include "ops/cuda_launch.h"
#include "ops/latent_heads/cpu.h"
#include "ops/latent_heads/latent_heads_cuda.h"
#include "ops/reference_backward.h"
#include "ops/rotary/angles.h"
#include "ops/row_layout.h"
#include "ops/vector.h"

namespace lorikeet::ops {
namespace {

constexpr const char* kOp = "latent_heads";

// Throws Error unless they are parts of `tokens` rows.
void check_parts(const LatentParts& parts, std::int64_t tokens, const LatentLayout& layout) {
  const auto fits = [&](const at::Tensor& part, std::int64_t width) {
    return part.defined() && part.dim() == 2 && part.size(0) == tokens && part.size(1) == width &&
           part.is_floating_point() && part.scalar_type() == parts.q.scalar_type() &&
           part.device() == parts.q.device();
  };
  check_tensor(fits(parts.q, layout.query_width()), kOp,
               "queries [tokens, heads * (plain + rotary)], floating", parts.q);
  check_tensor(fits(parts.kv, layout.key_value_width()), kOp,
               "keys and values [tokens, heads * (plain + value)] of the queries' dtype", parts.kv);
  check_tensor(fits(parts.shared_key, layout.rotary_dim), kOp,
               "a shared key [tokens, rotary] of the queries' dtype", parts.shared_key);
}

void check_angles(const at::Tensor& cos, const at::Tensor& sin, std::int64_t tokens,
                  const LatentLayout& layout) {
  check(layout.rotary_dim % 2 == 0 && cos.defined() && sin.defined() && cos.dim() == 2 &&
            cos.sizes() == sin.sizes() && cos.size(0) == tokens && 2 * cos.size(1) == layout.rotary_dim,
        kOp, "cos and sin [tokens, half of the rotated dimensions]",
        [&] { return describe(cos) + " and " + describe(sin); });
}

bool rows_are_dense(const LatentParts& parts) {
  return ops::rows_are_dense(parts.q) && ops::rows_are_dense(parts.kv) &&
         ops::rows_are_dense(parts.shared_key);
}

template <typename Pointer>
LatentPartsOnDevice<Pointer> on_device(const LatentParts& parts) {
  return {.q = parts.q.data_ptr(),
          .kv = parts.kv.data_ptr(),
          .shared_key = parts.shared_key.data_ptr(),
          .q_row = parts.q.stride(0),
          .kv_row = parts.kv.stride(0),
          .shared_row = parts.shared_key.stride(0)};
}

}  // namespace

at::Tensor latent_heads(const LatentParts& parts, const at::Tensor& cos, const at::Tensor& sin,
                        const LatentLayout& layout) {
  const at::Tensor& q = parts.q;
  check_tensor(q.defined() && q.dim() == 2, kOp, "a matrix of queries", q);
  const std::int64_t tokens = q.size(0);
  check_parts(parts, tokens, layout);
  check_angles(cos, sin, tokens, layout);
  const bool on_cuda = has_cuda_elements(q);
  if (!rows_are_dense(parts) || (!on_cuda && !vector::has_fast_elements(q)))
    return reference::latent_heads(parts, cos, sin, layout);
  const at::Tensor c = dense_floats(cos), s = dense_floats(sin);
  at::Tensor packed = at::empty({tokens, layout.padded().width()}, q.options());
  if (!on_cuda) {
    cpu::latent_heads(parts, c, s, layout, packed);
    return packed;
  }
  launch_on_device_of(packed, [&](void* stream) {
    launch_latent_heads(cuda_element(packed), on_device<const void*>(parts), c.const_data_ptr<float>(),
                        s.const_data_ptr<float>(), tokens, layout, packed.mutable_data_ptr(), stream);
  });
  return packed;
}

void latent_heads_backward(const HeadGradients& gradients, const at::Tensor& cos, const at::Tensor& sin,
                           const LatentLayout& layout, const LatentParts& out) {
  const std::int64_t tokens = gradients.q.size(0);
  check_parts(out, tokens, layout);
  check_angles(cos, sin, tokens, layout);
  for (const at::Tensor& gradient : {gradients.q, gradients.k, gradients.v}) {
    check_tensor(gradient.scalar_type() == out.q.scalar_type() && gradient.device() == out.q.device() &&
                     gradient.sizes() == at::IntArrayRef({tokens, layout.heads, layout.head_dim()}),
                 kOp, "gradients [tokens, heads, head_dim] of the parts' dtype", gradient);
  }
  const bool on_cuda = has_cuda_elements(out.q);
  if (!rows_are_dense(out) || (!on_cuda && !vector::has_fast_elements(out.q))) {
    const auto widths = {layout.query_width(), layout.key_value_width(), layout.rotary_dim};
    const at::Tensor all = reference_backward(
        [&](const at::Tensor& leaf) {
          const auto parts = leaf.split_with_sizes(widths, 1);
          return reference::latent_heads({parts[0], parts[1], parts[2]}, cos, sin, layout);
        },
        at::cat({out.q, out.kv, out.shared_key}, 1), pack(gradients));
    const auto parts = all.split_with_sizes(widths, 1);
    out.q.copy_(parts[0]);
    out.kv.copy_(parts[1]);
    out.shared_key.copy_(parts[2]);
    return;
  }
  const at::Tensor c = dense_floats(cos), s = dense_floats(sin);
  if (!on_cuda) {
    cpu::latent_heads_backward(pack(gradients), c, s, layout, out);
    return;
  }
  launch_on_device_of(out.q, [&](void* stream) {
    launch_latent_heads_backward(cuda_element(out.q), ops::on_device(gradients), c.const_data_ptr<float>(),
                                 s.const_data_ptr<float>(), tokens, layout, on_device<void*>(out), stream);
  });
}

}  // namespace lorikeet::ops
