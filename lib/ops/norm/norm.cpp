#include "ops/norm/norm.h"

#include <ATen/ATen.h>

#include "ops/check.h"
#include "ops/cuda_launch.h"
#include "ops/low_rank_term.h"
#include "ops/norm/cpu.h"
#include "ops/norm/norm_cuda.h"
#include "ops/norm/norm_terms_cuda.h"
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

bool has_kernel(const at::Tensor& x) { return vector::has_fast_elements(x) || has_cuda_elements(x); }

// Whether our kernels read these rows: see cpu::norm_forward.
bool is_fast(const at::Tensor& x) {
  if (!has_kernel(x)) return false;
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

NormRows rows_of(const at::Tensor& x) {
  return {.tokens = x.size(0), .heads = x.dim() == 3 ? x.size(1) : 1, .width = x.size(-1)};
}

// Parameters as the CUDA kernels read them: all of the input's dtype or all fp32.
NormParameters readable(const NormParameters& parameters, const at::Tensor& x) {
  const auto dtype = x.scalar_type();
  const bool same = parameters.weight.scalar_type() == dtype &&
                    (!parameters.bias.defined() || parameters.bias.scalar_type() == dtype);
  const auto convert = [&](const at::Tensor& values) {
    return values.defined() ? values.to(same ? dtype : at::kFloat).contiguous() : at::Tensor();
  };
  return {convert(parameters.weight), convert(parameters.bias)};
}

NormScaleOnDevice on_device(const NormParameters& parameters, const NormOptions& options) {
  return {.weight = parameters.weight.const_data_ptr(),
          .bias = parameters.bias.defined() ? parameters.bias.const_data_ptr() : nullptr,
          .is_fp32 = parameters.weight.scalar_type() == at::kFloat,
          .offset = options.unit_offset ? 1.0F : 0.0F};
}

const void* input_pointer(const at::Tensor& tensor) {
  return tensor.defined() ? tensor.const_data_ptr() : nullptr;
}
void* output_pointer(const at::Tensor& tensor) {
  return tensor.defined() ? tensor.mutable_data_ptr() : nullptr;
}
float* statistic(const at::Tensor& values) {
  return values.defined() ? values.mutable_data_ptr<float>() : nullptr;
}

// The low-rank term of delta as the kernel takes it; nothing where it doesn't.
std::optional<LowRankOnDevice> delta_term(const at::Tensor& delta, const std::vector<LowRankTerm>& terms) {
  // Of fewer rows each is better off with a block of its own, behind a product that adds the term.
  constexpr std::int64_t kLeastRows = 32;
  if (terms.size() != 1 || delta.size(0) < kLeastRows || delta.size(1) > kMostWidthWithTerm ||
      terms.front().right.size(0) != delta.size(1) || !takes_terms(delta, delta.size(1)))
    return std::nullopt;
  return term_on_device(delta, terms.front(), terms.front().right);
}

// sum is undefined without a delta.
void forward(const at::Tensor& x, const at::Tensor& delta, const NormParameters& parameters,
             const NormOptions& options, at::Tensor& sum, at::Tensor& y, NormStatistics* statistics,
             const std::optional<LowRankOnDevice>& term = std::nullopt) {
  NormStatistics own = empty_statistics(x, options.kind);
  if (has_cuda_elements(x)) {
    NormParameters scale = readable(parameters, x);
    if (term) scale = {aligned(scale.weight), aligned(scale.bias)};
    launch_on_device_of(x, [&](void* stream) {
      const NormForwardOnDevice in{.x = x.const_data_ptr(),
                                   .x_stride = x.stride(0),
                                   .delta = input_pointer(delta),
                                   .sum = output_pointer(sum),
                                   .scale = on_device(scale, options),
                                   .eps = static_cast<float>(options.eps),
                                   .y = y.mutable_data_ptr(),
                                   .y_stride = y.stride(0),
                                   .mean = statistic(own.mean),
                                   .rstd = statistic(own.rstd)};
      if (term) {
        launch_norm_forward(cuda_element(x), rows_of(x), in, *term, stream);
      } else {
        launch_norm_forward(cuda_element(x), rows_of(x), in, stream);
      }
    });
  } else {
    cpu::norm_forward(x, delta, effective(parameters, options), options.eps, sum, y, own);
  }
  if (statistics != nullptr) *statistics = std::move(own);
}

// dx may be dy; extra may be undefined, and `again`, which else gets forward's result.
void backward(const at::Tensor& dy, const at::Tensor& extra, const at::Tensor& x,
              const NormParameters& parameters, const NormOptions& options, const NormStatistics& statistics,
              at::Tensor& dx, const at::Tensor& again) {
  if (!has_cuda_elements(x)) {
    cpu::norm_backward(dy, extra, x, effective(parameters, options), statistics, dx, again);
    return;
  }
  // The bias is read for forward's result alone.
  const NormParameters scale = readable({parameters.weight, again.defined() ? parameters.bias : again}, x);
  launch_on_device_of(x, [&](void* stream) {
    const NormBackwardOnDevice in{.dy = dy.const_data_ptr(),
                                  .dy_stride = dy.stride(0),
                                  .extra = input_pointer(extra),
                                  .extra_stride = extra.defined() ? extra.stride(0) : 0,
                                  .x = x.const_data_ptr(),
                                  .x_stride = x.stride(0),
                                  .scale = on_device(scale, options),
                                  .mean = statistic(statistics.mean),
                                  .rstd = statistic(statistics.rstd),
                                  .dx = dx.mutable_data_ptr(),
                                  .dx_stride = dx.stride(0),
                                  .again = output_pointer(again)};
    launch_norm_backward(cuda_element(x), rows_of(x), in, stream);
  });
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
                    const NormOptions& options, at::Tensor& sum, NormStatistics* statistics,
                    const std::vector<LowRankTerm>& terms) {
  check_input(residual, parameters);
  check(delta.defined() && delta.sizes() == residual.sizes() && delta.scalar_type() == residual.scalar_type(),
        "add_norm", "residual and delta of one shape and dtype",
        [&] { return describe(residual) + " and " + describe(delta); });
  const auto term = delta_term(delta, terms);
  const bool is_dense = has_kernel(residual) && residual.is_contiguous() && delta.is_contiguous();
  check(terms.empty() || (term && is_dense && is_aligned(residual)), "add_norm",
        "low-rank terms that its kernel adds", [&] {
          return std::to_string(terms.size()) + " others for " + describe(residual) + " and " +
                 describe(delta);
        });
  if (!is_dense) {
    sum = residual + delta;
    return reference::norm(sum, parameters, options);
  }
  sum = at::empty_like(residual);
  auto y = at::empty_like(residual);
  forward(residual, delta, parameters, options, sum, y, statistics, term);
  return y;
}

bool add_norm_adds(const at::Tensor& delta, const std::vector<LowRankTerm>& terms) {
  return delta_term(delta, terms).has_value();
}

at::Tensor norm_backward(const at::Tensor& dy, const at::Tensor& extra, const at::Tensor& x,
                         const NormParameters& parameters, const NormOptions& options,
                         const NormStatistics& statistics, at::Tensor* again) {
  check_input(x, parameters);
  if (!statistics.rstd.defined()) {
    if (again != nullptr) *again = reference::norm(x, parameters, options);
    const auto dx = reference_backward(
        [&](const at::Tensor& input) { return reference::norm(input, parameters, options); }, x, dy);
    return extra.defined() ? dx + extra : dx;
  }
  auto dx = at::empty(x.sizes(), x.options());
  if (again != nullptr) *again = at::empty(x.sizes(), x.options());
  backward(dy, extra, x, parameters, options, statistics, dx, again != nullptr ? *again : at::Tensor());
  return dx;
}

void norm_backward_(at::Tensor& dy, const at::Tensor& x, const NormParameters& parameters,
                    const NormOptions& options, const NormStatistics& statistics) {
  check_input(x, parameters);
  if (statistics.rstd.defined() && is_fast(dy)) {
    backward(dy, {}, x, parameters, options, statistics, dy, {});
  } else {
    dy.copy_(norm_backward(dy.contiguous(), {}, x, parameters, options, statistics));
  }
}

}  // namespace lorikeet::ops
