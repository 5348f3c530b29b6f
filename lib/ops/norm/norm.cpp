#include "ops/norm/norm.h"

#include <ATen/ATen.h>

#include "ops/check.h"
#include "ops/norm/cpu.h"
#include "ops/reference_backward.h"
#include "ops/vector.h"

namespace lorikeet::ops {
namespace {

constexpr const char* kOp = "norm";

void check_input(const at::Tensor& x, const NormParameters& parameters) {
  check_tensor(x.defined() && (x.dim() == 2 || x.dim() == 3) && x.is_floating_point(), kOp,
               "a floating tensor [tokens, width] or [tokens, heads, width]", x);
  for (const auto* parameter : {&parameters.weight, &parameters.bias}) {
    if (parameter == &parameters.bias && !parameter->defined()) continue;
    check(parameter->defined() && parameter->dim() == 1 && parameter->size(0) == x.size(-1) &&
              parameter->is_floating_point(),
          kOp, "a floating weight and bias as long as the rows",
          [&] { return describe(*parameter) + " for " + describe(x); });
  }
}

// Whether our kernel reads these rows: see cpu::norm_forward.
bool is_fast(const at::Tensor& x) {
  if (!vector::has_fast_elements(x)) return false;
  return x.is_contiguous() || (x.dim() == 3 && x.stride(2) == 1 && x.stride(1) == x.size(2));
}

cpu::NormScale effective(const NormParameters& parameters, const NormOptions& options) {
  const auto weight = parameters.weight.to(at::kFloat).contiguous();
  return {options.unit_offset ? weight + 1 : weight,
          parameters.bias.defined() ? parameters.bias.to(at::kFloat).contiguous() : at::Tensor()};
}

NormStatistics empty_statistics(const at::Tensor& x, NormKind kind) {
  const auto rows =
      at::empty({x.numel() / std::max<std::int64_t>(x.size(-1), 1)}, x.options().dtype(at::kFloat));
  return {kind == NormKind::kLayer ? at::empty_like(rows) : at::Tensor(), rows};
}

// sum is undefined without a delta.
void forward(const at::Tensor& x, const at::Tensor& delta, const NormParameters& parameters,
             const NormOptions& options, at::Tensor& sum, at::Tensor& y, NormStatistics* statistics) {
  NormStatistics own = empty_statistics(x, options.kind);
  cpu::norm_forward(x, delta, effective(parameters, options), options.eps, sum, y, own);
  if (statistics != nullptr) *statistics = std::move(own);
}

}  // namespace

void norm_out(at::Tensor& y, const at::Tensor& x, const NormParameters& parameters,
              const NormOptions& options, NormStatistics* statistics) {
  check_input(x, parameters);
  at::Tensor sum;
  if (is_fast(x) && is_fast(y)) {
    forward(x, {}, parameters, options, sum, y, statistics);
  } else {
    y.copy_(reference::norm(x, parameters, options));
  }
}

at::Tensor norm(const at::Tensor& x, const NormParameters& parameters, const NormOptions& options,
                NormStatistics* statistics) {
  auto y = at::empty(x.sizes(), x.options());
  norm_out(y, x, parameters, options, statistics);
  return y;
}

at::Tensor add_norm(const at::Tensor& residual, const at::Tensor& delta, const NormParameters& parameters,
                    const NormOptions& options, at::Tensor& sum, NormStatistics* statistics) {
  check_input(residual, parameters);
  check(delta.defined() && delta.sizes() == residual.sizes() && delta.scalar_type() == residual.scalar_type(),
        "add_norm", "residual and delta of one shape and dtype",
        [&] { return describe(residual) + " and " + describe(delta); });
  if (!vector::is_fast(residual) || !vector::is_fast(delta)) {
    sum = residual + delta;
    return reference::norm(sum, parameters, options);
  }
  sum = at::empty_like(residual);
  auto y = at::empty_like(residual);
  forward(residual, delta, parameters, options, sum, y, statistics);
  return y;
}

at::Tensor norm_backward(const at::Tensor& dy, const at::Tensor& extra, const at::Tensor& x,
                         const NormParameters& parameters, const NormOptions& options,
                         const NormStatistics& statistics) {
  check_input(x, parameters);
  if (!statistics.rstd.defined()) {
    const auto dx = reference_backward(
        [&](const at::Tensor& input) { return reference::norm(input, parameters, options); }, x, dy);
    return extra.defined() ? dx + extra : dx;
  }
  auto dx = at::empty(x.sizes(), x.options());
  cpu::norm_backward(dy, extra, x, effective(parameters, options), statistics, dx);
  return dx;
}

void norm_backward_(at::Tensor& dy, const at::Tensor& x, const NormParameters& parameters,
                    const NormOptions& options, const NormStatistics& statistics) {
  check_input(x, parameters);
  if (statistics.rstd.defined() && is_fast(dy)) {
    cpu::norm_backward(dy, {}, x, effective(parameters, options), statistics, dy);
  } else {
    dy.copy_(norm_backward(dy.contiguous(), {}, x, parameters, options, statistics));
  }
}

}  // namespace lorikeet::ops
