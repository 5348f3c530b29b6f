#include "peft/base_factors.h"

#include <ATen/ATen.h>

#include <tuple>
#include <vector>

namespace lorikeet::peft {
namespace {

at::Tensor orthonormal(const at::Tensor& columns) { return std::get<0>(at::linalg_qr(columns)); }

// An orthonormal basis [out, rank] of about the space of W's largest singular vectors.
at::Tensor leading_space(const at::Tensor& weight, std::int64_t rank, std::int64_t iterations,
                         PhiloxStream stream) {
  std::vector<float> values(static_cast<std::size_t>(weight.size(1) * rank));
  for (float& v : values) v = stream.normal();
  const at::Tensor start = at::tensor(values).view({weight.size(1), rank}).to(weight.device());
  at::Tensor space = orthonormal(at::mm(weight, start));
  for (std::int64_t i = 0; i < iterations; ++i)
    space = orthonormal(at::mm(weight, orthonormal(at::mm(weight.t(), space))));
  return space;
}

}  // namespace

BaseFactors pissa_factors(const at::Tensor& weight, std::int64_t rank, double scale,
                          std::optional<std::int64_t> iterations, PhiloxStream stream) {
  at::Tensor left, values, right;
  if (iterations) {
    const at::Tensor space = leading_space(weight, rank, *iterations, stream);
    std::tie(left, values, right) = at::linalg_svd(at::mm(space.t(), weight), /*full_matrices=*/false);
    left = at::mm(space, left);
  } else {
    std::tie(left, values, right) = at::linalg_svd(weight, /*full_matrices=*/false);
  }
  const at::Tensor roots = (values.slice(0, 0, rank) / scale).sqrt();
  return {right.slice(0, 0, rank) * roots.unsqueeze(1), left.slice(1, 0, rank) * roots};
}

BaseFactors olora_factors(const at::Tensor& weight, std::int64_t rank) {
  const auto factors = at::linalg_qr(weight);
  return {std::get<1>(factors).slice(0, 0, rank).contiguous(),
          std::get<0>(factors).slice(1, 0, rank).contiguous()};
}

}  // namespace lorikeet::peft
