#include "ops/rotary/rotary.h"

#include <ATen/ATen.h>

#include <optional>
#include <string>

#include "ops/check.h"
#include "ops/cuda_launch.h"
#include "ops/low_rank_term.h"
#include "ops/rotary/angles.h"
#include "ops/rotary/cpu.h"
#include "ops/rotary/rotary_cuda.h"
#include "ops/rotary/rotary_terms_cuda.h"
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

// The low-rank terms of qkv as the kernel takes them; nothing where it doesn't.
std::optional<HeadTerms> head_terms(const at::Tensor& qkv, const at::Tensor& cos, const HeadLayout& layout,
                                    const std::vector<LowRankTerm>& terms) {
  if (!rotary_takes_terms(layout, cos.size(1))) return std::nullopt;
  const std::int64_t kv = layout.kv_heads * layout.head_dim;
  const auto found = terms_of_ranges(qkv, terms, {layout.k_begin(), kv, kv});
  if (!found) return std::nullopt;
  return HeadTerms{found->at(0), found->at(1), found->at(2)};
}

// `inverse`: back by the angles.
void rotate_in_place(at::Tensor& qkv, const at::Tensor& cos, const at::Tensor& sin, const HeadLayout& layout,
                     bool inverse, const std::vector<LowRankTerm>& terms = {}) {
  check_tensor(qkv.defined() && qkv.dim() == 2 && qkv.size(1) == layout.width() && qkv.is_floating_point() &&
                   qkv.is_contiguous(),
               kOp, "a dense floating matrix [tokens, (heads + 2 kv_heads) * head_dim]", qkv);
  check_angles(cos, sin, qkv.size(0), layout);
  const auto added = head_terms(qkv, cos, layout, terms);
  check(added || terms.empty(), kOp, "low-rank terms that its kernel adds",
        [&] { return std::to_string(terms.size()) + " others for " + describe(qkv); });
  const bool on_cuda = has_cuda_elements(qkv);
  if (!on_cuda && !vector::is_fast(qkv)) {
    qkv.copy_(reference::rotary(qkv, cos, inverse ? -sin : sin, layout));
    return;
  }
  at::Tensor c = dense_floats(cos), s = dense_floats(sin);
  if (!on_cuda) {
    cpu::rotate(qkv, c, s, layout, inverse);
    return;
  }
  if (added) c = aligned(c), s = aligned(s);
  launch_on_device_of(qkv, [&](void* stream) {
    const CudaElement element = cuda_element(qkv);
    void* const in = qkv.mutable_data_ptr();
    const float *const cosines = c.const_data_ptr<float>(), *const sines = s.const_data_ptr<float>();
    if (added) {
      launch_rotary(element, in, cosines, sines, qkv.size(0), layout, *added, stream);
    } else {
      launch_rotary(element, in, cosines, sines, qkv.size(0), layout, c.size(1), inverse, stream);
    }
  });
}

}  // namespace

void rotate(at::Tensor& qkv, const at::Tensor& cos, const at::Tensor& sin, const HeadLayout& layout,
            const std::vector<LowRankTerm>& terms) {
  rotate_in_place(qkv, cos, sin, layout, /*inverse=*/false, terms);
}

bool rotate_adds(const at::Tensor& qkv, const at::Tensor& cos, const HeadLayout& layout,
                 const std::vector<LowRankTerm>& terms) {
  return head_terms(qkv, cos, layout, terms).has_value();
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
