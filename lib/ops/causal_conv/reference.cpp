#include <ATen/ATen.h>

#include "ops/causal_conv/causal_conv.h"
#include "ops/wide.h"

namespace lorikeet::ops::reference {

at::Tensor causal_sums(const at::Tensor& x, const at::Tensor& weight, const Sequences& sequences,
                       const at::Tensor& before) {
  const at::ScalarType wide = wide_type(x);
  const std::int64_t channels = x.size(1), taps = weight.size(1);
  const at::Tensor kernel = weight.to(wide);
  std::vector<at::Tensor> parts;
  for (std::size_t s = 0; s + 1 < sequences.cu_seqlens.size(); ++s) {
    const std::int64_t begin = sequences.cu_seqlens[s], count = sequences.cu_seqlens[s + 1] - begin;
    if (count == 0) continue;
    const at::Tensor rows = x.narrow(0, begin, count).to(wide);
    const at::Tensor first = before.defined() ? before[static_cast<std::int64_t>(s)].to(wide)
                                              : at::zeros({taps - 1, channels}, rows.options());
    const at::Tensor padded = at::cat({first, rows});
    at::Tensor sum = padded.narrow(0, 0, count) * kernel.select(1, 0);
    for (std::int64_t tap = 1; tap < taps; ++tap)
      sum = sum + padded.narrow(0, tap, count) * kernel.select(1, tap);
    parts.push_back(sum);
  }
  return parts.empty() ? at::zeros(x.sizes(), x.options().dtype(wide)) : at::cat(parts);
}

at::Tensor causal_conv(const at::Tensor& x, const at::Tensor& weight, const Sequences& sequences,
                       const at::Tensor& before, const at::Tensor& bias) {
  at::Tensor sums = causal_sums(x, weight, sequences, before);
  if (bias.defined()) sums = sums + bias.to(sums.scalar_type());
  return (sums * sums.sigmoid()).to(x.scalar_type());  // not at::silu: see gated_norm
}

}  // namespace lorikeet::ops::reference
