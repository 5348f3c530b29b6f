#include <ATen/ATen.h>

#include "ops/lora/lora_linear.h"
#include "ops/wide.h"

namespace lorikeet::ops::reference {

at::Tensor lora_linear(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias,
                       const std::vector<LoraProjection>& projections,
                       const std::optional<LoraDropout>& dropout) {
  const auto wide = wide_type(x);
  const auto input = x.to(wide);
  auto adapter_input = input;
  if (dropout.has_value()) adapter_input = input * apply_dropout(at::ones_like(input), *dropout);
  auto out = at::matmul(input, weight.to(wide).t());
  if (bias.defined()) out = out + bias.to(wide);
  std::vector<at::Tensor> columns;
  std::int64_t done = 0;
  for (const auto& p : projections) {
    const auto update = at::matmul(at::matmul(adapter_input, p.a.to(wide).t()), p.b.to(wide).t()) * p.scale;
    columns.push_back(out.slice(1, done, p.out_begin));
    columns.push_back(out.slice(1, p.out_begin, p.out_end) + update);
    done = p.out_end;
  }
  columns.push_back(out.slice(1, done));
  return at::cat(columns, 1).to(x.scalar_type());
}

}  // namespace lorikeet::ops::reference
