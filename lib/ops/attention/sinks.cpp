#include "ops/attention/sinks.h"

#include <ATen/ATen.h>

#include "ops/attention/cpu.h"
#include "ops/attention/sinks_cuda.h"
#include "ops/check.h"
#include "ops/cuda_launch.h"
#include "ops/vector.h"
#include "ops/wide.h"

namespace lorikeet::ops {
namespace {

constexpr const char* kOp = "attention";

// [S, H, T / S] of the statistics, a view.
at::Tensor by_sequence_and_head(const at::Tensor& lse) {
  return lse.dim() == 4 ? lse.squeeze(3) : lse.unsqueeze(0);
}

void check_input(const at::Tensor& out, const at::Tensor& lse, const at::Tensor& sinks) {
  check_tensor(sinks.dim() == 1 && sinks.is_floating_point() && sinks.size(0) > 0, kOp,
               "a sink for each query head", sinks);
  check_tensor(
      out.dim() == 2 && out.is_contiguous() && out.is_floating_point() && out.size(1) % sinks.size(0) == 0,
      kOp, "dense rows of as many heads as there are sinks", out);
  const bool by_head = lse.dim() == 2 && lse.size(0) == sinks.size(0) && lse.size(1) == out.size(0);
  const bool by_sequence = lse.dim() == 4 && lse.size(1) == sinks.size(0) && lse.size(3) == 1 &&
                           lse.size(0) * lse.size(2) == out.size(0);
  check_tensor((by_head || by_sequence) && lse.scalar_type() == wide_type(out), kOp,
               "statistics of each head and token", lse);
}

}  // namespace

void apply_sinks_(const at::Tensor& out, const at::Tensor& lse, const at::Tensor& sinks) {
  check_input(out, lse, sinks);
  const std::int64_t heads = sinks.size(0), head_dim = out.size(1) / heads;
  const at::Tensor wide = sinks.to(lse.scalar_type()).contiguous();
  if (vector::has_fast_elements(out) && lse.dim() == 2 && lse.is_contiguous()) {
    cpu::apply_sinks(out, lse, wide);
  } else if (has_cuda_elements(out) && is_aligned(out) &&
             sinks_kernel_fits(cuda_element(out), heads, head_dim)) {
    const at::Tensor view = by_sequence_and_head(lse);
    launch_on_device_of(out, [&](void* stream) {
      launch_apply_sinks(cuda_element(out),
                         {.tokens = out.size(0),
                          .heads = heads,
                          .head_dim = head_dim,
                          .sinks = wide.const_data_ptr<float>(),
                          .lse = lse.mutable_data_ptr<float>(),
                          .places = {.length = view.size(2),
                                     .sequence = view.stride(0),
                                     .head = view.stride(1),
                                     .token = view.stride(2)}},
                         out.mutable_data_ptr(), stream);
    });
  } else {
    reference::apply_sinks_(out, lse, wide);
  }
}

namespace reference {

void apply_sinks_(const at::Tensor& out, const at::Tensor& lse, const at::Tensor& sinks) {
  const at::Tensor statistics = by_sequence_and_head(lse);  // [S, H, L]
  const at::Tensor of_heads = sinks.to(lse.scalar_type()).view({-1, 1});
  const at::Tensor share = (statistics - of_heads).sigmoid_().transpose(1, 2).unsqueeze(3);  // [S, L, H, 1]
  const at::Tensor rows =
      out.view({statistics.size(0), statistics.size(2), sinks.size(0), out.size(1) / sinks.size(0)});
  if (out.scalar_type() == lse.scalar_type()) {
    rows.mul_(share);
  } else {
    rows.copy_(rows.to(lse.scalar_type()).mul_(share));
  }
  statistics.copy_(at::logaddexp(statistics, of_heads));
}

}  // namespace reference
}  // namespace lorikeet::ops
