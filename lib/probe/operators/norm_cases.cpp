#include <ATen/ATen.h>

#include "ops/norm/norm.h"
#include "ops/qk_norm/qk_norm.h"
#include "probe/operators/cases.h"

namespace lorikeet::probe {
namespace {

struct Form {
  const char* name;
  ops::NormOptions options;
  bool bias;
};

const Form kForms[] = {{"rms", {ops::NormKind::kRms, 1e-5, false}, false},
                       {"rms with unit offset", {ops::NormKind::kRms, 1e-6, true}, false},
                       {"layer", {ops::NormKind::kLayer, 1e-5, false}, true}};

ops::NormParameters parameters(const Place& place, std::int64_t width, bool bias) {
  return {place.normal({width}, 11), bias ? place.normal({width}, 12) : at::Tensor()};
}

Results rows(const Place& place, const Form& form, std::int64_t count, std::int64_t width) {
  const auto p = parameters(place, width, form.bias);
  const at::Tensor x = place.normal({count, width}, 1), dy = place.normal({count, width}, 2);
  ops::NormStatistics statistics;
  const at::Tensor y = ops::norm(x, p, form.options, &statistics);
  const at::Tensor dx = ops::norm_backward(dy, {}, x, p, form.options, statistics);
  at::Tensor in_place = dy.clone();
  ops::norm_backward_(in_place, x, p, form.options, statistics);
  return {{"output", y}, {"gradient of x", dx}, {"gradient of x, in place", in_place}};
}

Results with_residual(const Place& place, const Form& form, std::int64_t count, std::int64_t width) {
  const auto p = parameters(place, width, form.bias);
  const at::Tensor residual = place.normal({count, width}, 1), delta = place.normal({count, width}, 2);
  at::Tensor sum;
  ops::NormStatistics statistics;
  const at::Tensor y = ops::add_norm(residual, delta, p, form.options, sum, &statistics);
  at::Tensor again;
  const at::Tensor dx = ops::norm_backward(place.normal({count, width}, 3), place.normal({count, width}, 4),
                                           sum, p, form.options, statistics, &again);
  return {{"sum", sum}, {"output", y}, {"gradient of the sum", dx}, {"output, again", again}};
}

// Heads that lie in wider rows, as query and key heads do.
Results heads(const Place& place, const Form& form, std::int64_t count, std::int64_t head_dim) {
  constexpr std::int64_t kHeads = 3;
  const auto p = parameters(place, head_dim, form.bias);
  const auto heads_of = [&](const at::Tensor& packed) {
    return packed.narrow(1, head_dim, kHeads * head_dim).unflatten(1, {kHeads, head_dim});
  };
  const auto packed = [&](std::uint64_t seed) {
    return place.normal({count, (kHeads + 2) * head_dim}, seed);
  };
  const at::Tensor x = packed(1);
  at::Tensor out = packed(2), gradient = packed(3);
  at::Tensor y = heads_of(out), dy = heads_of(gradient);
  ops::NormStatistics statistics;
  ops::norm_out(y, heads_of(x), p, form.options, &statistics);
  ops::norm_backward_(dy, heads_of(x), p, form.options, statistics);
  return {{"output and what lies beside it", out}, {"gradient and what lies beside it", gradient}};
}

// Queries and keys, rotated behind their norms: in one kernel, or where its forms end by several.
Results queries_and_keys(const Place& place, const ops::HeadLayout& layout, std::int64_t half,
                         bool unit_offset) {
  constexpr std::int64_t kTokens = 19;
  const at::Tensor angles = place.wide_normal({kTokens, half}, 1);
  // Rounded to fp32 in every dtype, as a run's table is.
  const auto table = [&](const at::Tensor& values) {
    return values.to(at::kFloat).to(place.wide()).to(place.device);
  };
  const ops::RotaryAngles rotary{table(angles.cpu().cos()), table(angles.cpu().sin())};
  const ops::NormOptions options{.eps = 1e-6, .unit_offset = unit_offset};
  const ops::QkNorms norms{.q = {place.normal({layout.head_dim}, 2), {}},
                           .k = {place.normal({layout.head_dim}, 3), {}},
                           .q_options = options,
                           .k_options = options};
  const at::Tensor qkv = place.normal({kTokens, layout.width()}, 4);
  const auto heads = [&](std::int64_t count, std::uint64_t seed) {
    return place.normal({kTokens, count, layout.head_dim}, seed);
  };
  const ops::HeadGradients gradients{heads(layout.heads, 5), heads(layout.kv_heads, 6),
                                     heads(layout.kv_heads, 7)};
  ops::QkNormStatistics statistics;
  const at::Tensor y = ops::norm_and_rotate(qkv, norms, rotary, layout, &statistics);
  return {{"output", y},
          {"gradient", ops::norm_and_rotate_backward(gradients, qkv, norms, rotary, layout, statistics)}};
}

void add_queries_and_keys(std::vector<OperatorCase>& cases) {
  struct Form {
    const char* name;
    ops::HeadLayout layout;
    std::int64_t half;
    bool unit_offset;
  };
  constexpr Form kForms[] = {{"heads of 128", {8, 2, 128}, 64, false},
                             {"heads of 256, unit offset", {2, 1, 256}, 128, true},
                             {"heads of 96", {3, 3, 96}, 48, false},
                             {"a part of each head", {4, 2, 16}, 3, false},
                             {"odd halves", {4, 2, 10}, 5, false}};
  for (const Form& form : kForms) {
    cases.push_back({"QK norm and rotary", form.name, [=](const Place& at) {
                       return queries_and_keys(at, form.layout, form.half, form.unit_offset);
                     }});
  }
}

}  // namespace

std::vector<OperatorCase> norm_cases() {
  // Odd widths, one row, none, and rows wider than a block of threads; 16-byte loads fit some of them only.
  constexpr std::pair<std::int64_t, std::int64_t> kSizes[] = {{33, 5},   {33, 64},  {7, 515},
                                                              {1, 4096}, {3, 8200}, {0, 64}};
  std::vector<OperatorCase> cases;
  for (const Form& form : kForms) {
    for (const auto& size : kSizes) {
      const std::int64_t count = size.first, width = size.second;
      const std::string shape =
          std::string(form.name) + ", " + std::to_string(count) + " x " + std::to_string(width);
      cases.push_back({"norm", shape, [=](const Place& at) { return rows(at, form, count, width); }});
      cases.push_back({"norm", "residual, " + shape,
                       [=](const Place& at) { return with_residual(at, form, count, width); }});
    }
    for (const std::int64_t head_dim : {7, 64, 128}) {
      cases.push_back({"norm", std::string(form.name) + ", heads of " + std::to_string(head_dim),
                       [=](const Place& at) { return heads(at, form, 9, head_dim); }});
    }
  }
  add_queries_and_keys(cases);
  return cases;
}

}  // namespace lorikeet::probe
