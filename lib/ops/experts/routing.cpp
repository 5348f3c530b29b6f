#include "ops/experts/routing.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <limits>
#include <string>

#include "ops/check.h"
#include "ops/cuda_launch.h"
#include "ops/experts/cpu.h"
#include "ops/experts/expert_rows_cuda.h"
#include "ops/take_rows.h"
#include "ops/vector.h"
#include "ops/wide.h"

namespace lorikeet::ops {
namespace {

constexpr const char* kOp = "route";

thread_local std::int64_t waits = 0;

// The rows of a dry run's experts: equally many.
std::vector<std::int64_t> equal_ends(std::int64_t rows, std::int64_t experts) {
  std::vector<std::int64_t> ends;
  for (std::int64_t e = 1; e <= experts; ++e) ends.push_back(rows * e / experts);
  return ends;
}

Routing dry_routing(const at::Tensor& logits, std::int64_t k) {
  const std::int64_t tokens = logits.size(0);
  const auto indices = logits.options().dtype(at::kLong);
  return {.experts = at::empty({tokens, k}, indices),
          .weights = at::empty({tokens, k}, logits.options().dtype(wide_type(logits))),
          .tokens = at::empty({tokens * k}, indices),
          .places = at::empty({tokens, k}, indices),
          .ends = at::empty({logits.size(1)}, indices)};
}

void check_groups(std::int64_t experts, const RouterOptions& options) {
  const std::int64_t groups = options.groups, chosen = options.groups_per_token;
  check(groups >= 1 && experts % groups == 0, kOp, "groups that divide the experts",
        [&] { return std::to_string(groups) + " groups of " + std::to_string(experts) + " experts"; });
  check(chosen >= 1 && chosen <= groups, kOp, "at least one group a token, and no more than there are",
        [&] { return std::to_string(chosen) + " of " + std::to_string(groups); });
  const std::int64_t of_group = experts / groups;
  check(options.group_top >= 1 && options.group_top <= of_group, kOp,
        "a group's score of at least one expert, and no more than it has",
        [&] { return std::to_string(options.group_top) + " of " + std::to_string(of_group); });
  check(options.per_token <= chosen * of_group, kOp, "no more experts a token than its groups have",
        [&] { return std::to_string(options.per_token) + " of " + std::to_string(chosen * of_group); });
}

// Scores for the choice [T, E], -inf in place of those of experts outside a token's groups.
at::Tensor within_groups(const at::Tensor& scores, const RouterOptions& options) {
  const std::int64_t groups = options.groups;
  const at::Tensor grouped = scores.view({scores.size(0), groups, scores.size(1) / groups});
  const at::Tensor of_groups = std::get<0>(grouped.topk(options.group_top, 2)).sum(2);
  const at::Tensor chosen = std::get<1>(of_groups.topk(options.groups_per_token, 1));
  const at::Tensor outside = at::ones_like(of_groups, at::kBool).scatter_(1, chosen, false);
  return grouped.masked_fill(outside.unsqueeze(2), -std::numeric_limits<double>::infinity())
      .view(scores.sizes());
}

// One expert of each token after the other: a copy of all rows would be k times as large as the result.
at::Tensor combine_by_aten(const at::Tensor& rows, const Routing& routing, RowWeights weights) {
  const at::ScalarType wide = wide_type(rows);
  at::Tensor sum = at::zeros({routing.places.size(0), rows.size(1)}, rows.options().dtype(wide));
  for (std::int64_t j = 0; j < routing.places.size(1); ++j) {
    const at::Tensor of_one = take_rows(rows, routing.places.select(1, j)).to(wide);
    if (weights == RowWeights::kRouter) {
      sum.addcmul_(of_one, routing.weights.narrow(1, j, 1));
    } else {
      sum.add_(of_one);
    }
  }
  return sum.to(rows.scalar_type());
}

at::Tensor spread_by_aten(const at::Tensor& x, const Routing& routing, RowWeights weights) {
  at::Tensor rows = take_rows(x, routing.tokens);
  if (weights == RowWeights::kNone) return rows;
  const at::Tensor of_rows = at::empty({rows.size(0)}, routing.weights.options())
                                 .scatter_(0, routing.places.flatten(), routing.weights.flatten());
  return rows.mul_(of_rows.unsqueeze(1));
}

// What the kernels of a GPU take of a routing; `weights` are fp32 there.
ExpertRowsOnDevice rows_on_device(const Routing& routing, std::int64_t width, RowWeights weights) {
  ExpertRowsOnDevice rows{.tokens = routing.places.size(0),
                          .width = width,
                          .per_token = routing.places.size(1),
                          .places = nullptr,
                          .weights = nullptr};
  if (routing.places.is_meta()) return rows;
  rows.places = routing.places.const_data_ptr<std::int64_t>();
  if (weights == RowWeights::kRouter) rows.weights = routing.weights.const_data_ptr<float>();
  return rows;
}

bool fits_on_cuda(const at::Tensor& x) {
  return has_cuda_elements(x) && x.is_contiguous() && is_aligned(x) &&
         expert_row_kernels_fit(cuda_element(x), x.size(1));
}

}  // namespace

const std::vector<std::int64_t>& Routing::host_ends() const {
  if (known_ends.empty() && ends.is_meta()) known_ends = equal_ends(tokens.size(0), ends.size(0));
  if (known_ends.empty()) {
    if (ends.is_cuda()) ++waits;
    const at::Tensor on_host = ends.cpu();
    const auto* first = on_host.const_data_ptr<std::int64_t>();
    known_ends.assign(first, first + on_host.numel());
  }
  return known_ends;
}

std::int64_t routing_waits() { return waits; }

Routing route(const at::Tensor& logits, const RouterOptions& options, const at::Tensor& choice_bias) {
  check_tensor(logits.defined() && logits.dim() == 2 && logits.is_floating_point(), kOp,
               "floating logits [tokens, experts]", logits);
  const std::int64_t tokens = logits.size(0), experts = logits.size(1), k = options.per_token;
  check(k >= 1 && k <= experts, kOp, "at least one expert a token, and no more than there are",
        [&] { return std::to_string(k) + " of " + std::to_string(experts); });
  check_groups(experts, options);
  if (choice_bias.defined()) {
    check_tensor(choice_bias.dim() == 1 && choice_bias.size(0) == experts && choice_bias.is_floating_point(),
                 kOp, "a floating bias for each expert", choice_bias);
  }
  if (logits.is_meta()) return dry_routing(logits, k);
  Routing routing;
  const bool sigmoid = options.scores == RouterScores::kSigmoid;
  const at::Tensor wide = logits.to(wide_type(logits));
  const at::Tensor scores = sigmoid ? wide.sigmoid() : wide.softmax(1);
  at::Tensor choice = scores;
  if (choice_bias.defined()) choice = scores + choice_bias.to(scores.scalar_type());
  if (options.limits_groups()) choice = within_groups(choice, options);
  std::tie(routing.weights, routing.experts) = choice.topk(k, 1);
  if (!choice.is_same(scores)) routing.weights = scores.gather(1, routing.experts);
  if (options.normalized) {
    at::Tensor sum = routing.weights.sum(1, /*keepdim=*/true);
    if (sigmoid) sum += options.sum_eps;
    if (options.least_sum > 0) sum.clamp_min_(options.least_sum);
    routing.weights /= sum;
  }
  if (options.scale != 1) routing.weights *= options.scale;
  // Slot t * k + j is token t's j-th expert.
  const auto [of_rows, slots] = routing.experts.flatten().sort(/*stable=*/true, 0, /*descending=*/false);
  routing.tokens = slots.div(k, "floor");
  routing.places =
      at::empty_like(slots).scatter_(0, slots, at::arange(tokens * k, slots.options())).view({tokens, k});
  routing.ends =
      at::searchsorted(of_rows, at::arange(experts, slots.options()), /*out_int32=*/false, /*right=*/true);
  return routing;
}

void scale_weights(Routing& routing, const at::Tensor& scales) {
  check_tensor(scales.dim() == 1 && scales.size(0) == routing.ends.size(0) && scales.is_floating_point(),
               "scale_weights", "a floating number for each expert", scales);
  routing.unscaled = routing.weights;
  if (scales.is_meta()) {
    routing.weights = at::empty_like(routing.unscaled);
    return;
  }
  const at::Tensor of_chosen = scales.index_select(0, routing.experts.flatten()).view_as(routing.experts);
  routing.weights = routing.unscaled * of_chosen.to(routing.unscaled.scalar_type());
}

at::Tensor route_backward(const at::Tensor& weighted_gradient, const at::Tensor& logits,
                          const Routing& routing, const RouterOptions& options) {
  if (logits.is_meta()) return at::empty_like(logits);
  const at::Tensor sum = weighted_gradient.sum(1, /*keepdim=*/true);
  const bool sigmoid = options.scores == RouterScores::kSigmoid;
  // Normalised weights, and sigmoids, are functions of the chosen logits alone: a softmax, or shares of the
  // sigmoids' sum. Those of the others have no part in them.
  if (options.normalized || sigmoid) {
    at::Tensor of_chosen = weighted_gradient;
    if (options.normalized) {
      const at::Tensor& weights = routing.unscaled.defined() ? routing.unscaled : routing.weights;
      const at::Tensor shares = options.scale == 1 ? weights : weights / options.scale;
      of_chosen = of_chosen - shares * sum;
    }
    if (sigmoid) {
      const at::Tensor chosen = logits.gather(1, routing.experts).to(sum.scalar_type());
      of_chosen = of_chosen * (1 - chosen.sigmoid());
    }
    return at::zeros_like(logits, logits.options().dtype(sum.scalar_type()))
        .scatter_(1, routing.experts, of_chosen)
        .to(logits.scalar_type());
  }
  at::Tensor gradient = logits.to(sum.scalar_type()).softmax(1).mul_(-sum);
  // Not scatter_add_, of which CUDA has no deterministic form for matrices; a token's experts differ.
  gradient.scatter_(1, routing.experts, gradient.gather(1, routing.experts) + weighted_gradient);
  return gradient.to(logits.scalar_type());
}

at::Tensor spread_rows(const at::Tensor& x, const Routing& routing, RowWeights weights) {
  check_tensor(x.defined() && x.dim() == 2 && x.size(0) == routing.places.size(0), "spread_rows",
               "rows [tokens, width]", x);
  const bool on_cpu = vector::is_fast(x);
  if (!on_cpu && !fits_on_cuda(x)) return spread_by_aten(x, routing, weights);
  auto rows = at::empty({routing.tokens.size(0), x.size(1)}, x.options());
  if (on_cpu) {
    cpu::spread_rows(x, routing, weights, rows);
  } else {
    launch_on_device_of(x, [&](void* stream) {
      launch_spread_rows(cuda_element(x), rows_on_device(routing, x.size(1), weights), x.const_data_ptr(),
                         rows.mutable_data_ptr(), stream);
    });
  }
  return rows;
}

at::Tensor combine_rows(const at::Tensor& rows, const Routing& routing, RowWeights weights) {
  const std::int64_t tokens = routing.places.size(0);
  check_tensor(rows.defined() && rows.dim() == 2 && rows.size(0) == routing.tokens.size(0), "combine_rows",
               "rows [tokens * experts of a token, width]", rows);
  const bool on_cpu = vector::is_fast(rows);
  if (!on_cpu && !fits_on_cuda(rows)) return combine_by_aten(rows, routing, weights);
  auto out = at::empty({tokens, rows.size(1)}, rows.options());
  if (on_cpu) {
    cpu::combine_rows(rows, routing, weights, out);
  } else {
    launch_on_device_of(rows, [&](void* stream) {
      launch_combine_rows(cuda_element(rows), rows_on_device(routing, rows.size(1), weights),
                          rows.const_data_ptr(), out.mutable_data_ptr(), stream);
    });
  }
  return out;
}

at::Tensor of_places(const at::Tensor& values, const Routing& routing) {
  if (values.is_meta()) return at::empty(routing.places.sizes(), values.options());
  return values.index_select(0, routing.places.flatten()).view(routing.places.sizes());
}

at::Tensor row_products(const at::Tensor& a, const at::Tensor& b) {
  check(a.dim() == 2 && a.sizes() == b.sizes() && a.scalar_type() == b.scalar_type(), "row_products",
        "two matrices of one shape and dtype", [&] { return describe(a) + " and " + describe(b); });
  auto out = at::empty({a.size(0)}, a.options().dtype(wide_type(a)));
  if (vector::is_fast(a) && vector::is_fast(b)) {
    cpu::row_products(a, b, out);
    return out;
  }
  if (fits_on_cuda(a) && fits_on_cuda(b)) {
    launch_on_device_of(a, [&](void* stream) {
      launch_row_products(cuda_element(a), a.size(0), a.size(1), a.const_data_ptr(), b.const_data_ptr(),
                          out.mutable_data_ptr<float>(), stream);
    });
    return out;
  }
  constexpr std::int64_t kChunkElements = std::int64_t{1} << 22;  // of scratch in the wide type
  const std::int64_t step = std::max<std::int64_t>(1, kChunkElements / std::max<std::int64_t>(1, a.size(1)));
  for (std::int64_t row = 0; row < a.size(0); row += step) {
    const std::int64_t count = std::min(step, a.size(0) - row);
    at::Tensor part = out.narrow(0, row, count);
    at::sum_out(part, a.narrow(0, row, count).to(out.scalar_type()) * b.narrow(0, row, count), 1);
  }
  return out;
}

}  // namespace lorikeet::ops
