#include <ATen/ATen.h>

#include <cmath>
#include <cstdint>
#include <numeric>
#include <optional>
#include <string>
#include <vector>

#include "ops/dtype.h"
#include "ops/experts/grouped_lora.h"
#include "ops/experts/routing.h"
#include "ops/part.h"
#include "probe/operators/cases.h"

namespace lorikeet::probe {
namespace {

// Tokens, and the experts that they go to.
struct Mixture {
  std::int64_t tokens, experts, per_token;
  std::int64_t unused = -1;  // the expert that no token goes to
  std::string name;

  std::int64_t rows() const { return tokens * per_token; }
};

// Few rows an expert.
const Mixture& small() {
  static const Mixture all{
      .tokens = 70, .experts = 5, .per_token = 2, .name = "70 tokens, 2 of 5 experts each"};
  return all;
}

// Several tiles of 128 rows an expert, the last ones partly filled, and between them an expert without rows.
const Mixture& large() {
  static const Mixture all{
      .tokens = 700, .experts = 3, .per_token = 1, .unused = 1, .name = "700 tokens, 3 experts, one unused"};
  return all;
}

ops::Routing routing(const Place& place, const Mixture& of) {
  const at::Tensor logits = place.normal({of.tokens, of.experts}, 1);
  if (of.unused < 0) return ops::route(logits, {.per_token = of.per_token});
  // Each token's expert is the best by far: of hundreds of tokens some have equal logits in 16 bits.
  logits.mul_(0.125).select(1, of.unused).sub_(8);
  const at::Tensor token = at::arange(of.tokens, at::kLong).to(place.device);
  const at::Tensor first = token.mul(7).remainder(10).lt(6), margin = token.remainder(5).add(1);
  logits.select(1, 0).add_(margin * first);
  logits.select(1, of.experts - 1).add_(margin * first.logical_not());
  return ops::route(logits, {.per_token = of.per_token, .normalized = false});
}

Results rows(const Place& place, const Mixture& of, std::int64_t width) {
  const ops::Routing of_tokens = routing(place, of);
  const at::Tensor x = place.normal({of.tokens, width}, 2),
                   spread = ops::spread_rows(x, of_tokens, ops::RowWeights::kRouter);
  const at::Tensor plain = ops::spread_rows(x, of_tokens, ops::RowWeights::kNone);
  return {{"weights", of_tokens.weights},
          {"rows of experts", spread},
          {"sums of experts' rows", ops::combine_rows(plain, of_tokens, ops::RowWeights::kRouter)},
          {"products of rows", ops::of_places(ops::row_products(plain, spread), of_tokens)}};
}

// A linear layer of each expert with adapters side by side that together reach all of its output.
struct Layers {
  ops::MatrixStack weights;
  std::vector<std::vector<ops::LoraProjection>> adapters;
  at::Tensor grad_a;               // of all experts
  std::vector<at::Tensor> grad_b;  // by adapter, of all experts

  Layers(const Place& place, std::int64_t experts, const std::vector<std::int64_t>& widths, std::int64_t in,
         std::int64_t rank)
      : adapters(static_cast<std::size_t>(experts)) {
    const auto normal = [&](at::IntArrayRef sizes, std::uint64_t seed) {
      return place.normal(sizes, seed, 1 / std::sqrt(static_cast<double>(sizes.back())));
    };
    const std::int64_t out = std::accumulate(widths.begin(), widths.end(), std::int64_t{0});
    const at::Tensor w = normal({experts, out, in}, 3),
                     a = normal({experts, std::ssize(widths) * rank, in}, 4);
    const std::int64_t bytes = out * in * static_cast<std::int64_t>(w.element_size());
    weights = {.first = {&ops::dense_format(ops::from_torch(place.dtype)), {}, out, in, nullptr},
               .bytes = w.view({-1}).view(at::kByte),
               .apart = bytes,
               .count = experts,
               .bias = normal({experts, out}, 6)};
    weights.first.bytes = weights.bytes.narrow(0, 0, bytes);
    grad_a = place.sums(a.sizes());
    std::int64_t begin = 0;
    for (std::size_t i = 0; i < widths.size(); ++i) {
      const std::int64_t first = static_cast<std::int64_t>(i) * rank;
      const at::Tensor b = normal({experts, widths[i], rank}, 10 + i);
      grad_b.push_back(place.sums(b.sizes()));
      for (std::int64_t e = 0; e < experts; ++e)
        adapters[static_cast<std::size_t>(e)].push_back({.out_begin = begin,
                                                         .out_end = begin + widths[i],
                                                         .a = a[e].narrow(0, first, rank),
                                                         .b = b[e],
                                                         .grad_a = grad_a[e].narrow(0, first, rank),
                                                         .grad_b = grad_b[i][e],
                                                         .scale = 2});
      begin += widths[i];
    }
  }
};

// All at once where the device's kernels do that, else each expert by itself.
Results layers(const Place& place, const Mixture& of, const std::vector<std::int64_t>& widths,
               std::int64_t in, std::int64_t rank) {
  const ops::Routing of_tokens = routing(place, of);
  const Layers layers(place, of.experts, widths, in, rank);
  const std::int64_t count = of.rows(), out = layers.weights.first.rows;
  const at::Tensor x = place.normal({count, in}, 7), dy = place.normal({count, out}, 8);
  at::Tensor y = at::empty({count, out}, x.options()), dx = at::empty({count, in}, x.options());
  const auto updates = ops::stack_updates(layers.adapters);
  if (updates && ops::groups_products(x, layers.weights)) {
    const at::Tensor low_rank = ops::grouped_lora_forward(y, x, of_tokens, layers.weights, *updates);
    const at::Tensor gradient =
        ops::grouped_lora_backward(dx, dy, low_rank, of_tokens, layers.weights, *updates);
    ops::grouped_a_gradients(gradient, x, of_tokens, *updates);
  } else {
    std::int64_t begin = 0;
    for (std::int64_t e = 0; e < of.experts; ++e) {
      const auto index = static_cast<std::size_t>(e);
      const std::int64_t end = of_tokens.host_ends()[index];
      const auto own = [&](const at::Tensor& all) { return ops::part(all, 0, begin, end); };
      at::Tensor low_rank;
      ops::lora_linear(own(x), layers.weights.of(e), layers.weights.bias[e], layers.adapters[index], {},
                       &low_rank, nullptr, own(y));
      const auto gradients =
          ops::lora_linear_backward(own(dy), low_rank, layers.weights.of(e), layers.adapters[index], {},
                                    /*input_gradient=*/true, nullptr, own(dx));
      if (gradients.want_input()) ops::add_a_gradients(gradients, own(x), {});
      begin = end;
    }
  }
  Results results = {{"output", y}, {"gradient of x", dx}, {"gradient of A", layers.grad_a}};
  for (std::size_t i = 0; i < widths.size(); ++i)
    results.emplace_back("gradient of B " + std::to_string(i), layers.grad_b[i]);
  return results;
}

}  // namespace

std::vector<OperatorCase> expert_cases() {
  std::vector<OperatorCase> cases;
  for (const Mixture& of : {small(), large()}) {
    for (const std::int64_t width : {64, 65}) {
      cases.push_back({"experts", "rows of " + of.name + ", width " + std::to_string(width),
                       [of, width](const Place& at) { return rows(at, of, width); }});
    }
  }
  const auto add = [&](const Mixture& of, const std::vector<std::int64_t>& widths, std::int64_t in,
                       std::int64_t rank) {
    std::string out = std::to_string(widths[0]);
    if (widths.size() > 1) out += " and " + std::to_string(widths[1]);
    cases.push_back({"experts",
                     "linear with LoRA of rank " + std::to_string(rank) + ", " + of.name + ", " +
                         std::to_string(in) + " x " + out,
                     [=](const Place& at) { return layers(at, of, widths, in, rank); }});
  };
  add(small(), {264}, 72, 8);
  add(small(), {24}, 136, 8);
  add(small(), {65}, 72, 8);
  for (const std::int64_t rank : {8, 40}) {
    add(large(), {136}, 264, rank);
    add(large(), {136, 136}, 72, rank);  // as gate and up
  }
  return cases;
}

}  // namespace lorikeet::probe
