#include <torch/torch.h>

#include "ops/attention/attention.h"

namespace lorikeet::ops {

at::Tensor attention(const at::Tensor& qkv, const HeadLayout& layout, const Sequences& sequences,
                     const AttentionOptions& options) {
  return reference::attention(qkv, layout, sequences, options);
}

at::Tensor attention_cached(const at::Tensor& q, const std::vector<at::Tensor>& k,
                            const std::vector<at::Tensor>& v, const std::vector<std::int32_t>& cu_q,
                            const AttentionOptions& options) {
  const at::NoGradGuard no_grad;
  return reference::attention_cached(q, k, v, cu_q, options);
}

}  // namespace lorikeet::ops
