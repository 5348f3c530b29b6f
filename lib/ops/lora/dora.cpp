#include "ops/lora/dora.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <limits>

#include "ops/check.h"
#include "ops/cuda_launch.h"
#include "ops/lora/dora_cpu.h"
#include "ops/lora/dora_cuda.h"
#include "ops/vector.h"
#include "ops/wide.h"

namespace lorikeet::ops {
namespace {

constexpr const char* kOp = "dora";
constexpr std::int64_t kChunkElements = std::int64_t{1} << 20;  // of scratch in the wide type

void check_factors(const at::Tensor& x, const at::Tensor& factors) {
  check_tensor(x.defined() && x.dim() == 2 && x.is_floating_point(), kOp, "a floating matrix [tokens, out]",
               x);
  check_tensor(factors.defined() && factors.dim() == 1 && factors.size(0) == x.size(1) &&
                   factors.scalar_type() == wide_type(x),
               kOp, "a factor a column, fp32 or, for fp64, fp64", factors);
}

// |w|^2 of rows [begin, end) of the weight.
at::Tensor squared_norms(const FrozenMatrix& weight, std::int64_t begin, std::int64_t end,
                         at::ScalarType wide) {
  const std::int64_t step = std::max<std::int64_t>(1, kChunkElements / weight.cols);
  std::vector<at::Tensor> parts;
  for (; begin < end; begin += step) {
    const auto rows = weight.format->rows(weight, begin, std::min(begin + step, end), wide);
    parts.push_back(rows.square().sum(1));
  }
  return parts.size() == 1 ? parts[0] : at::cat(parts);
}

}  // namespace

at::Tensor row_squares(const FrozenMatrix& weight, const at::Tensor& a) {
  return squared_norms(weight, 0, weight.rows, wide_type(a));
}

at::Tensor dora_norms(const FrozenMatrix& weight, const std::vector<LoraProjection>& projections,
                      const at::Tensor& known_squares) {
  check_tensor(!known_squares.defined() || (known_squares.dim() == 1 && known_squares.size(0) == weight.rows),
               kOp, "a square for each row of the weight", known_squares);
  std::vector<at::Tensor> norms;
  for (const auto& p : projections) {
    const auto wide = wide_type(p.a);
    // A W^T [r, out] as a product of r "tokens": no format needs more than that.
    auto crossed = at::empty({p.a.size(0), weight.rows}, p.a.options());
    weight.format->exact_forward(crossed, p.a, weight);
    const auto a = p.a.to(wide), b = p.b.to(wide);
    const auto along = (b * crossed.slice(1, p.out_begin, p.out_end).t().to(wide)).sum(1);
    const auto update = (at::mm(b, at::mm(a, a.t())) * b).sum(1);
    const auto frozen = known_squares.defined() ? known_squares.slice(0, p.out_begin, p.out_end)
                                                : squared_norms(weight, p.out_begin, p.out_end, wide);
    const auto squares = frozen + along * (2 * p.scale) + update * (p.scale * p.scale);
    norms.push_back(squares.clamp_min_(0).sqrt_().clamp_min_(std::numeric_limits<float>::min()));
  }
  return norms.size() == 1 ? norms[0] : at::cat(norms);
}

at::Tensor dora_column_norms(const FrozenMatrix& table, const LoraProjection& update) {
  const auto wide = wide_type(update.a);
  const auto a = update.a.to(wide), b = update.b.to(wide);
  auto squares = at::zeros({table.cols}, a.options());
  auto crossed = at::zeros_like(a);  // b^T W [r, D]
  const std::int64_t step = std::max<std::int64_t>(1, kChunkElements / table.cols);
  for (std::int64_t begin = 0; begin < table.rows; begin += step) {
    const std::int64_t end = std::min(begin + step, table.rows);
    const auto rows = table.format->rows(table, begin, end, wide);
    squares.add_(rows.square().sum(0));
    crossed.add_(at::mm(b.slice(0, begin, end).t(), rows));
  }
  squares.add_((crossed * a).sum(0), 2 * update.scale);
  // In fp64: a product over all rows of a table may be one long sum, of which fp32 would keep five digits.
  const auto exact = b.to(at::kDouble);
  const auto squared = at::mm(exact.t(), exact).to(wide);
  squares.add_((at::mm(squared, a) * a).sum(0), update.scale * update.scale);
  return squares.clamp_min_(0).sqrt_().clamp_min_(std::numeric_limits<float>::min());
}

at::Tensor DoraMagnitude::factors() const { return magnitude.to(norms.scalar_type()) / norms; }

void DoraMagnitude::add_gradient(const at::Tensor& factors_gradient) const {
  if (!gradient.defined()) return;
  at::Tensor sum = gradient;
  sum.add_(factors_gradient / norms);
}

at::Tensor scale_columns(const at::Tensor& x, const at::Tensor& factors, const at::Tensor& bias) {
  check_factors(x, factors);
  check_tensor(!bias.defined() || (bias.dim() == 1 && bias.size(0) == x.size(1)), kOp,
               "a bias as long as there are columns", bias);
  if (has_cuda_elements(x)) {
    auto y = at::empty(x.sizes(), x.options());
    const auto input = x.contiguous(), scale = factors.contiguous();
    const auto offset = bias.defined() ? bias.to(x.scalar_type()).contiguous() : bias;
    launch_on_device_of(x, [&](void* stream) {
      launch_scale_columns(cuda_element(x), input.const_data_ptr(), scale.const_data_ptr<float>(),
                           offset.defined() ? offset.const_data_ptr() : nullptr, x.size(0), x.size(1),
                           y.mutable_data_ptr(), stream);
    });
    return y;
  }
  if (!vector::is_fast(x)) return reference::scale_columns(x, factors, bias);
  auto y = at::empty_like(x);
  cpu::scale_columns(x, factors.contiguous(), bias.defined() ? bias.to(at::kFloat).contiguous() : bias, y);
  return y;
}

ScaleColumnsBackward scale_columns_backward(const at::Tensor& dy, const at::Tensor& x,
                                            const at::Tensor& factors) {
  check_factors(x, factors);
  check_tensor(dy.defined() && dy.sizes() == x.sizes() && dy.scalar_type() == x.scalar_type(), kOp,
               "a gradient of the output's shape and dtype", dy);
  auto dx = at::empty_like(x);
  const auto gradient = dy.contiguous();
  if (has_cuda_elements(x) && x.is_contiguous()) {
    const std::int64_t runs = (x.size(0) + kScaleColumnsRows - 1) / kScaleColumnsRows;
    const auto sums = at::empty({runs, x.size(1)}, factors.options());
    const auto scale = factors.contiguous();
    launch_on_device_of(x, [&](void* stream) {
      launch_scale_columns_backward(cuda_element(x), gradient.const_data_ptr(), x.const_data_ptr(),
                                    scale.const_data_ptr<float>(), x.size(0), x.size(1),
                                    dx.mutable_data_ptr(), sums.mutable_data_ptr<float>(), stream);
    });
    return {dx, sums.sum(0)};
  }
  auto sums = at::empty_like(factors);
  if (vector::is_fast(x)) {
    cpu::scale_columns_backward(gradient, x, factors.contiguous(), dx, sums);
    return {dx, sums};
  }
  sums.zero_();
  const std::int64_t step = std::max<std::int64_t>(1, kChunkElements / std::max<std::int64_t>(1, x.size(1)));
  for (std::int64_t begin = 0; begin < x.size(0); begin += step) {
    const std::int64_t end = std::min(begin + step, x.size(0));
    const auto part = gradient.slice(0, begin, end).to(factors.scalar_type());
    sums.add_((part * x.slice(0, begin, end)).sum(0));
    dx.slice(0, begin, end).copy_(part * factors);
  }
  return {dx, sums};
}

namespace reference {

at::Tensor scale_columns(const at::Tensor& x, const at::Tensor& factors, const at::Tensor& bias) {
  const auto product = x.to(factors.scalar_type()) * factors;
  return (bias.defined() ? product + bias : product).to(x.scalar_type());
}

}  // namespace reference
}  // namespace lorikeet::ops
