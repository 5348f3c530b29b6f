#include "ops/qk_norm/qk_norm.h"

#include <ATen/ATen.h>

#include "ops/check.h"
#include "ops/cuda_launch.h"
#include "ops/qk_norm/qk_norm_cuda.h"
#include "ops/rotary/rotary.h"

namespace lorikeet::ops {
namespace {

// The parts of packed rows as [T, heads, width of a norm], views.
at::Tensor queries(const at::Tensor& qkv, const QkNorms& norms, const HeadLayout& layout) {
  return qkv.narrow(1, 0, layout.k_begin()).unflatten(1, {-1, norms.q.weight.numel()});
}

at::Tensor keys(const at::Tensor& qkv, const QkNorms& norms, const HeadLayout& layout) {
  return qkv.narrow(1, layout.k_begin(), layout.v_begin() - layout.k_begin())
      .unflatten(1, {-1, norms.k.weight.numel()});
}

void check_input(const at::Tensor& qkv, const QkNorms& norms, const HeadLayout& layout) {
  constexpr const char* kOp = "norm_and_rotate";
  check_tensor(qkv.defined() && qkv.dim() == 2 && qkv.size(1) == layout.width() && qkv.is_floating_point() &&
                   qkv.is_contiguous(),
               kOp, "a dense floating matrix [tokens, (heads + 2 kv_heads) * head_dim]", qkv);
  const auto fits = [&](const at::Tensor& weight, std::int64_t heads) {
    return weight.defined() && weight.dim() == 1 &&
           (weight.numel() == layout.head_dim || weight.numel() == heads * layout.head_dim);
  };
  check(fits(norms.q.weight, layout.heads) && fits(norms.k.weight, layout.kv_heads), kOp,
        "norms over each head or over all heads",
        [&] { return describe(norms.q.weight) + " and " + describe(norms.k.weight); });
}

// Whether one kernel does all of it.
bool is_fused(const at::Tensor& qkv, const QkNorms& norms, const RotaryAngles& angles,
              const HeadLayout& layout) {
  if (!has_cuda_elements(qkv) || !qk_norm_kernel_fits(cuda_element(qkv), layout.head_dim)) return false;
  const auto is_plain = [&](const NormParameters& parameters, const NormOptions& options) {
    const at::ScalarType dtype = parameters.weight.scalar_type();
    return options.kind == NormKind::kRms && !parameters.bias.defined() &&
           parameters.weight.numel() == layout.head_dim && parameters.weight.is_contiguous() &&
           is_aligned(parameters.weight) && (dtype == at::kFloat || dtype == qkv.scalar_type());
  };
  return is_plain(norms.q, norms.q_options) && is_plain(norms.k, norms.k_options) &&
         norms.q.weight.scalar_type() == norms.k.weight.scalar_type() &&
         norms.q_options.eps == norms.k_options.eps &&
         norms.q_options.unit_offset == norms.k_options.unit_offset && is_aligned(qkv) &&
         !layout.interleaved && angles.cos.defined() && 2 * angles.cos.size(1) == layout.head_dim &&
         angles.cos.is_contiguous() && angles.sin.is_contiguous() && angles.cos.scalar_type() == at::kFloat &&
         angles.sin.scalar_type() == at::kFloat && is_aligned(angles.cos) && is_aligned(angles.sin);
}

QkNormOnDevice on_device(const at::Tensor& qkv, const QkNorms& norms, const RotaryAngles& angles,
                         const HeadLayout& layout) {
  return {.rows = qkv.size(0),
          .layout = layout,
          .q_weight = norms.q.weight.const_data_ptr(),
          .k_weight = norms.k.weight.const_data_ptr(),
          .is_fp32 = norms.q.weight.scalar_type() == at::kFloat,
          .offset = norms.q_options.unit_offset ? 1.0F : 0.0F,
          .eps = static_cast<float>(norms.q_options.eps),
          .cos = angles.cos.const_data_ptr<float>(),
          .sin = angles.sin.const_data_ptr<float>()};
}

}  // namespace

at::Tensor norm_and_rotate(const at::Tensor& qkv, const QkNorms& norms, const RotaryAngles& angles,
                           const HeadLayout& layout, QkNormStatistics* statistics) {
  check_input(qkv, norms, layout);
  at::Tensor out = at::empty_like(qkv);
  if (!is_fused(qkv, norms, angles, layout)) {
    at::Tensor q = queries(out, norms, layout), k = keys(out, norms, layout);
    norm_out(q, queries(qkv, norms, layout), norms.q, norms.q_options,
             statistics != nullptr ? &statistics->q : nullptr);
    norm_out(k, keys(qkv, norms, layout), norms.k, norms.k_options,
             statistics != nullptr ? &statistics->k : nullptr);
    out.slice(1, layout.v_begin()).copy_(qkv.slice(1, layout.v_begin()));
    if (angles.cos.defined()) rotate(out, angles.cos, angles.sin, layout);
    return out;
  }
  if (statistics != nullptr) {
    const auto of = [&](std::int64_t heads) {
      return at::empty({qkv.size(0) * heads}, qkv.options().dtype(at::kFloat));
    };
    *statistics = {.q = {{}, of(layout.heads)}, .k = {{}, of(layout.kv_heads)}};
  }
  launch_on_device_of(qkv, [&](void* stream) {
    const auto rstd = [&](NormStatistics QkNormStatistics::*part) {
      return statistics != nullptr ? (statistics->*part).rstd.mutable_data_ptr<float>() : nullptr;
    };
    launch_norm_and_rotate(cuda_element(qkv), on_device(qkv, norms, angles, layout), qkv.const_data_ptr(),
                           out.mutable_data_ptr(), rstd(&QkNormStatistics::q), rstd(&QkNormStatistics::k),
                           stream);
  });
  return out;
}

at::Tensor norm_and_rotate_backward(HeadGradients gradients, const at::Tensor& qkv, const QkNorms& norms,
                                    const RotaryAngles& angles, const HeadLayout& layout,
                                    const QkNormStatistics& statistics) {
  check_input(qkv, norms, layout);
  if (!is_fused(qkv, norms, angles, layout) || !rows_are_aligned(gradients)) {
    at::Tensor dqkv;
    if (angles.cos.defined()) {
      dqkv = rotate_backward(gradients, angles.cos, angles.sin, layout);
    } else {
      dqkv = pack(gradients);
    }
    gradients = {};
    at::Tensor dq = queries(dqkv, norms, layout), dk = keys(dqkv, norms, layout);
    norm_backward_(dq, queries(qkv, norms, layout), norms.q, norms.q_options, statistics.q);
    norm_backward_(dk, keys(qkv, norms, layout), norms.k, norms.k_options, statistics.k);
    return dqkv;
  }
  at::Tensor dqkv = gradients.packed.defined() ? gradients.packed : at::empty_like(qkv);
  launch_on_device_of(qkv, [&](void* stream) {
    launch_norm_and_rotate_backward(
        cuda_element(qkv), on_device(qkv, norms, angles, layout), on_device(gradients), qkv.const_data_ptr(),
        statistics.q.rstd.const_data_ptr<float>(), statistics.k.rstd.const_data_ptr<float>(),
        dqkv.mutable_data_ptr(), stream);
  });
  return dqkv;
}

namespace reference {

at::Tensor norm_and_rotate(const at::Tensor& qkv, const QkNorms& norms, const RotaryAngles& angles,
                           const HeadLayout& layout) {
  const at::Tensor q = reference::norm(queries(qkv, norms, layout), norms.q, norms.q_options);
  const at::Tensor k = reference::norm(keys(qkv, norms, layout), norms.k, norms.k_options);
  const at::Tensor normed = at::cat({q.flatten(1), k.flatten(1), qkv.slice(1, layout.v_begin())}, 1);
  return angles.cos.defined() ? rotary(normed, angles.cos, angles.sin, layout) : normed;
}

}  // namespace reference
}  // namespace lorikeet::ops
