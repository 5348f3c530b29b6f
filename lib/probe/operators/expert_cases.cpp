#include <ATen/ATen.h>

#include <cmath>
#include <optional>

#include "ops/dtype.h"
#include "ops/experts/grouped_lora.h"
#include "ops/experts/routing.h"
#include "ops/part.h"
#include "probe/operators/cases.h"

namespace lorikeet::probe {
namespace {

constexpr std::int64_t kTokens = 70, kExperts = 5, kPerToken = 2, kRank = 8;

ops::Routing routing(const Place& place) {
  return ops::route(place.normal({kTokens, kExperts}, 1), {.per_token = kPerToken});
}

Results rows(const Place& place, std::int64_t width) {
  const ops::Routing of_tokens = routing(place);
  const at::Tensor x = place.normal({kTokens, width}, 2),
                   spread = ops::spread_rows(x, of_tokens, ops::RowWeights::kRouter);
  const at::Tensor plain = ops::spread_rows(x, of_tokens, ops::RowWeights::kNone);
  return {{"weights", of_tokens.weights},
          {"rows of experts", spread},
          {"sums of experts' rows", ops::combine_rows(plain, of_tokens, ops::RowWeights::kRouter)},
          {"products of rows", ops::of_places(ops::row_products(plain, spread), of_tokens)}};
}

// A linear layer of each expert with an adapter on all of its output.
struct Layers {
  ops::MatrixStack weights;
  std::vector<std::vector<ops::LoraProjection>> adapters;
  at::Tensor grad_a, grad_b;  // of all experts

  Layers(const Place& place, std::int64_t out, std::int64_t in) {
    const auto normal = [&](at::IntArrayRef sizes, std::uint64_t seed) {
      return place.normal(sizes, seed, 1 / std::sqrt(static_cast<double>(sizes.back())));
    };
    const at::Tensor w = normal({kExperts, out, in}, 3), a = normal({kExperts, kRank, in}, 4),
                     b = normal({kExperts, out, kRank}, 5);
    const std::int64_t bytes = out * in * static_cast<std::int64_t>(w.element_size());
    weights = {.first = {&ops::dense_format(ops::from_torch(place.dtype)), {}, out, in, nullptr},
               .bytes = w.view({-1}).view(at::kByte),
               .apart = bytes,
               .count = kExperts,
               .bias = normal({kExperts, out}, 6)};
    weights.first.bytes = weights.bytes.narrow(0, 0, bytes);
    grad_a = place.sums(a.sizes());
    grad_b = place.sums(b.sizes());
    for (std::int64_t e = 0; e < kExperts; ++e)
      adapters.push_back({{.out_begin = 0,
                           .out_end = out,
                           .a = a[e],
                           .b = b[e],
                           .grad_a = grad_a[e],
                           .grad_b = grad_b[e],
                           .scale = 2}});
  }
};

// All at once where the device's kernels do that, else each expert by itself.
Results layers(const Place& place, std::int64_t out, std::int64_t in) {
  const ops::Routing of_tokens = routing(place);
  const Layers layers(place, out, in);
  const std::int64_t count = kTokens * kPerToken;
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
    for (std::int64_t e = 0; e < kExperts; ++e) {
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
  return {{"output", y},
          {"gradient of x", dx},
          {"gradient of A", layers.grad_a},
          {"gradient of B", layers.grad_b}};
}

}  // namespace

std::vector<OperatorCase> expert_cases() {
  std::vector<OperatorCase> cases;
  for (const std::int64_t width : {64, 65}) {
    cases.push_back({"experts", "rows of 70 tokens, 2 of 5 experts each, width " + std::to_string(width),
                     [width](const Place& at) { return rows(at, width); }});
  }
  for (const auto& [out, in] : {std::pair<std::int64_t, std::int64_t>{264, 72}, {24, 136}, {65, 72}}) {
    cases.push_back(
        {"experts",
         "linear with LoRA, 140 rows of 5 experts, " + std::to_string(in) + " x " + std::to_string(out),
         [out = out, in = in](const Place& at) { return layers(at, out, in); }});
  }
  return cases;
}

}  // namespace lorikeet::probe
