#include "ops/head_gradients.h"

#include <ATen/ATen.h>

#include <utility>

#include "ops/check.h"

namespace lorikeet::ops {

HeadGradients HeadGradients::of(at::Tensor packed, const HeadLayout& layout) {
  const at::Tensor heads = packed.view({packed.size(0), layout.heads + 2 * layout.kv_heads, layout.head_dim});
  const std::int64_t v = layout.heads + layout.kv_heads;
  return {heads.slice(1, 0, layout.heads), heads.slice(1, layout.heads, v), heads.slice(1, v),
          std::move(packed)};
}

at::Tensor pack(const HeadGradients& gradients) {
  if (gradients.packed.defined()) return gradients.packed;
  return at::cat({gradients.q, gradients.k, gradients.v}, 1).flatten(1);
}

HeadsOnDevice on_device(const HeadGradients& gradients) {
  for (const at::Tensor& part : {gradients.q, gradients.k, gradients.v})
    check_tensor(part.stride(2) == 1 && (part.size(1) == 1 || part.stride(1) == part.size(2)),
                 "attention_backward", "gradients [tokens, heads, head_dim] with dense heads", part);
  return {.q = gradients.q.const_data_ptr(),
          .k = gradients.k.const_data_ptr(),
          .v = gradients.v.const_data_ptr(),
          .q_row = gradients.q.stride(0),
          .k_row = gradients.k.stride(0),
          .v_row = gradients.v.stride(0)};
}

bool rows_are_aligned(const HeadGradients& gradients) {
  const auto is_aligned = [](const at::Tensor& part) {
    const auto bytes = static_cast<std::int64_t>(part.element_size());
    return part.storage_offset() * bytes % 16 == 0 && part.stride(0) * bytes % 16 == 0;
  };
  return is_aligned(gradients.q) && is_aligned(gradients.k) && is_aligned(gradients.v);
}

}  // namespace lorikeet::ops
