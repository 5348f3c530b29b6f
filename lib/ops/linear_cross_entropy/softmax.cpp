#include "ops/linear_cross_entropy/softmax.h"

#include <ATen/ATen.h>

#include "ops/cuda_launch.h"
#include "ops/linear_cross_entropy/cpu.h"
#include "ops/linear_cross_entropy/softmax_cuda.h"
#include "ops/vector.h"
#include "ops/wide.h"

namespace lorikeet::ops {

void softmax_nll(at::Tensor& logits, const at::Tensor& labels, const CrossEntropyOptions& options,
                 bool gradient, double grad_scale, at::Tensor nll) {
  if (vector::is_fast(logits) && labels.is_contiguous() && nll.is_contiguous()) {
    cpu::softmax_nll(logits, labels, options, gradient, grad_scale, nll);
    return;
  }
  if (has_cuda_elements(logits) && logits.is_contiguous() && labels.is_contiguous() && nll.is_contiguous()) {
    launch_on_device_of(logits, [&](void* stream) {
      launch_softmax_nll(cuda_element(logits),
                         {.logits = logits.mutable_data_ptr(),
                          .rows = logits.size(0),
                          .width = logits.size(1),
                          .labels = labels.const_data_ptr<std::int64_t>(),
                          .scale = static_cast<float>(options.scale),
                          .soft_cap = static_cast<float>(options.soft_cap),
                          .gradient = gradient,
                          .grad_scale = static_cast<float>(grad_scale),
                          .nll = nll.mutable_data_ptr<float>()},
                         stream);
    });
    return;
  }
  auto values = logits.to(wide_type(logits)) * options.scale;
  at::Tensor slope;  // of the cap
  if (options.soft_cap > 0) {
    const auto capped = at::tanh(values / options.soft_cap);
    slope = 1 - capped.square();
    values = capped * options.soft_cap;
  }
  const auto index = labels.unsqueeze(1);
  const auto log_p = at::log_softmax(values, 1);
  nll.copy_(log_p.gather(1, index).squeeze(1).neg_());
  if (!gradient) return;
  const auto& grad = log_p.exp_();
  grad.scatter_add_(1, index, at::full_like(index, -1, grad.options()));
  if (slope.defined()) grad.mul_(slope);
  logits.copy_(grad.mul_(grad_scale * options.scale));
}

}  // namespace lorikeet::ops
