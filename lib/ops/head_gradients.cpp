#include "ops/head_gradients.h"

#include <ATen/ATen.h>

#include <utility>

#include "ops/attention/heads.h"
#include "ops/check.h"
#include "ops/cuda_launch.h"

namespace lorikeet::ops {

HeadGradients HeadGradients::of(at::Tensor packed, const HeadLayout& layout) {
  const auto [q, k, v] = split_heads(packed, layout);
  return {q, k, v, std::move(packed)};
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
  const auto has_aligned_rows = [](const at::Tensor& part) {
    return is_aligned(part) && part.stride(0) * static_cast<std::int64_t>(part.element_size()) % 16 == 0;
  };
  return has_aligned_rows(gradients.q) && has_aligned_rows(gradients.k) && has_aligned_rows(gradients.v);
}

}  // namespace lorikeet::ops
