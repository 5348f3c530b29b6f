#include <ATen/ATen.h>

#include <optional>
#include <utility>

#include "ops/activation/activation.h"
#include "ops/lora/dora.h"
#include "ops/lora/lora_linear.h"
#include "ops/matmul/matmul.h"
#include "ops/norm/norm.h"
#include "ops/quantized/float8_product.h"
#include "ops/quantized/quantized_format.h"
#include "ops/rotary/rotary.h"
#include "probe/operators/cases.h"

namespace lorikeet::probe {
namespace {

// Weights as small as a model's, so that sums over a row are about as large as the inputs.
at::Tensor weight_of(const Place& place, std::int64_t out, std::int64_t in, std::uint64_t seed) {
  return place.normal({out, in}, seed, 1 / std::sqrt(static_cast<double>(in)));
}

Results products(const Place& place, std::int64_t tokens, std::int64_t out, std::int64_t in) {
  const at::Tensor x = place.normal({tokens, in}, 1), dy = place.normal({tokens, out}, 2);
  const at::Tensor w = weight_of(place, out, in, 3);
  at::Tensor sums = place.sums({out, in});
  ops::matmul_tn_add(sums, dy, x, 0.5);
  return {{"x w^T", ops::matmul_nt(x, w)}, {"dy w", ops::matmul_nn(dy, w)}, {"dy^T x", sums}};
}

// Of operands whose rows lie in wider ones.
Results strided_products(const Place& place) {
  const at::Tensor x = place.normal({33, 200}, 1).slice(1, 8, 72),
                   w = weight_of(place, 40, 96, 2).slice(1, 16, 80);
  return {{"x w^T", ops::matmul_nt(x, w)},
          {"y w", ops::matmul_nn(place.normal({33, 60}, 3).slice(1, 8, 48), w)}};
}

ops::LoraProjection projection(const Place& place, std::int64_t begin, std::int64_t end, std::int64_t in,
                               std::int64_t rank, std::uint64_t seed) {
  return {.out_begin = begin,
          .out_end = end,
          .a = weight_of(place, rank, in, seed),
          .b = weight_of(place, end - begin, rank, seed + 1),
          .grad_a = place.sums({rank, in}),
          .grad_b = place.sums({end - begin, rank}),
          .scale = 2};
}

// `everywhere`: the middle third of the outputs has an adapter, too.
Results lora(const Place& place, const ops::FrozenMatrix& weight, std::int64_t tokens, bool bias,
             double dropout, bool everywhere = false) {
  const std::int64_t in = weight.cols, out = weight.rows, third = out / 3;
  const at::Tensor x = place.normal({tokens, in}, 1);
  std::vector<ops::LoraProjection> adapters = {projection(place, 0, third, in, 8, 20),
                                               projection(place, 2 * third, out, in, 5, 30)};
  if (everywhere) {
    adapters.insert(adapters.begin() + 1, projection(place, third, 2 * third, in, 3, 40));
    adapters[1].scale = 0.5;
  }
  std::optional<ops::LoraDropout> mask;
  if (dropout > 0) {
    mask = ops::LoraDropout{.p = dropout,
                            .seed = 42,
                            .step = 7,
                            .group = 3,
                            .sample_ids = place.ids(tokens, 3),
                            .position_ids = at::arange(tokens, at::kLong).to(place.device)};
  }
  at::Tensor low_rank;
  const at::Tensor y =
      ops::lora_linear(x, weight, bias ? place.normal({out}, 4) : at::Tensor(), adapters, mask, &low_rank);
  const at::Tensor dx =
      ops::lora_linear_backward(place.normal({tokens, out}, 5), x, low_rank, weight, adapters, mask,
                                /*input_gradient=*/true);
  return {{"output", y},
          {"gradient of x", dx},
          {"gradient of the first A", adapters[0].grad_a},
          {"gradient of the first B", adapters[0].grad_b},
          {"gradient of the last A", adapters.back().grad_a},
          {"gradient of the last B", adapters.back().grad_b}};
}

// Three adapters of one rank that lie in memory as an adapter store has them, and many rows: on a GPU their
// gradients are one pass over that of the output.
Results lora_of_store(const Place& place, std::int64_t tokens, std::int64_t rank) {
  constexpr std::int64_t kIn = 64, kWidth = 72, kCount = 3, kOut = kCount * kWidth;
  const at::Tensor x = place.normal({tokens, kIn}, 1);
  const at::Tensor a = weight_of(place, kCount * rank, kIn, 2), b = weight_of(place, kOut, rank, 3);
  const at::Tensor grad_a = place.sums({kCount * rank, kIn}), grad_b = place.sums({kOut, rank});
  std::vector<ops::LoraProjection> adapters;
  for (std::int64_t i = 0; i < kCount; ++i) {
    adapters.push_back({.out_begin = i * kWidth,
                        .out_end = (i + 1) * kWidth,
                        .a = a.slice(0, i * rank, (i + 1) * rank),
                        .b = b.slice(0, i * kWidth, (i + 1) * kWidth),
                        .grad_a = grad_a.slice(0, i * rank, (i + 1) * rank),
                        .grad_b = grad_b.slice(0, i * kWidth, (i + 1) * kWidth),
                        .scale = 2});
  }
  const ops::FrozenMatrix weight = ops::frozen_matrix(weight_of(place, kOut, kIn, 10));
  at::Tensor low_rank;
  const at::Tensor y = ops::lora_linear(x, weight, /*bias=*/{}, adapters, std::nullopt, &low_rank);
  const at::Tensor dx = ops::lora_linear_backward(place.normal({tokens, kOut}, 5), x, low_rank, weight,
                                                  adapters, std::nullopt, /*input_gradient=*/true);
  return {{"output", y}, {"gradient of x", dx}, {"gradient of A", grad_a}, {"gradient of B", grad_b}};
}

// A feed-forward block: on a GPU with tensor cores its projections leave their low-rank terms to the
// activation between them, for some ranks, and, where `sums`, the gradient of down's A.
Results gated_block(const Place& place, std::int64_t tokens, std::int64_t width, std::int64_t rank,
                    bool sums = true) {
  constexpr std::int64_t kIn = 72;
  constexpr auto kKind = ops::Activation::kSilu;
  const at::Tensor x = place.normal({tokens, kIn}, 1);
  const ops::FrozenMatrix up = ops::frozen_matrix(weight_of(place, 2 * width, kIn, 2)),
                          down = ops::frozen_matrix(weight_of(place, kIn, width, 3));
  const std::vector<ops::LoraProjection> of_up{projection(place, 0, width, kIn, rank, 20),
                                               projection(place, width, 2 * width, kIn, rank, 30)},
      of_down{projection(place, 0, kIn, width, rank, 40)};
  ops::LeftTerms left(ops::gated_activation_adds), left_back(ops::gated_activation_backward_adds);
  at::Tensor low_rank, down_low_rank, product;
  at::Tensor gate_up = ops::lora_linear(x, up, /*bias=*/{}, of_up, std::nullopt, &low_rank, &left);
  const at::Tensor y = ops::lora_linear(ops::gated_activation(gate_up, kKind, left.terms), down, /*bias=*/{},
                                        of_down, std::nullopt, &down_low_rank);
  const auto gradients =
      ops::lora_linear_backward(place.normal({tokens, kIn}, 4), down_low_rank, down, of_down, std::nullopt,
                                /*input_gradient=*/true, &left_back);
  if (sums && ops::gated_activation_backward_sums(gradients.dx, left_back.terms, left_back.right_gradient)) {
    ops::gated_activation_backward_(gradients.dx, gate_up, kKind, nullptr, left.terms, left_back.terms,
                                    left_back.right_gradient);
    ops::a_gradients_added(gradients);
  } else {
    ops::gated_activation_backward_(gradients.dx, gate_up, kKind, &product, left.terms, left_back.terms);
    ops::add_a_gradients(gradients, product, std::nullopt);
  }
  const at::Tensor dx =
      ops::lora_linear_backward(gate_up, x, low_rank, up, of_up, std::nullopt, /*input_gradient=*/true);
  return {{"output", y},
          {"gradient of x", dx},
          {"gradient of gate and up", gate_up},
          {"gradient of down's A", of_down[0].grad_a},
          {"gradient of down's B", of_down[0].grad_b}};
}

// A projection that on a GPU with tensor cores leaves its low-rank term to the norm behind it, for some
// ranks.
Results residual_block(const Place& place, std::int64_t tokens, std::int64_t width, std::int64_t rank,
                       ops::NormKind kind = ops::NormKind::kRms) {
  constexpr std::int64_t kIn = 72;
  const ops::FrozenMatrix weight = ops::frozen_matrix(weight_of(place, width, kIn, 2));
  ops::LeftTerms left(ops::add_norm_adds);
  const at::Tensor delta = ops::lora_linear(place.normal({tokens, kIn}, 1), weight, /*bias=*/{},
                                            {projection(place, 0, width, kIn, rank, 20)}, std::nullopt,
                                            /*low_rank=*/nullptr, &left);
  const ops::NormParameters scale{place.normal({width}, 4),
                                  kind == ops::NormKind::kLayer ? place.normal({width}, 5) : at::Tensor()};
  at::Tensor sum;
  const at::Tensor y =
      ops::add_norm(place.normal({tokens, width}, 3), delta, scale, {.kind = kind}, sum, nullptr, left.terms);
  return {{"sum", sum}, {"output", y}};
}

// Projections to queries, keys and values that on a GPU with tensor cores leave their low-rank terms to
// rotary, for some ranks; `queries_alone`: the other two have no adapters.
Results rotated_block(const Place& place, std::int64_t tokens, std::int64_t rank,
                      bool queries_alone = false) {
  constexpr std::int64_t kIn = 72, kHalf = 64;
  const ops::HeadLayout layout{2, 1, 2 * kHalf};
  const at::Tensor angles = place.wide_normal({tokens, kHalf}, 1).cpu();
  // Rounded to fp32 in every dtype, as a run's table is.
  const auto table = [&](const at::Tensor& values) {
    return values.to(at::kFloat).to(place.wide()).to(place.device);
  };
  const at::Tensor cos = table(angles.cos()), sin = table(angles.sin());
  ops::LeftTerms left([&](const at::Tensor& product, const std::vector<ops::LowRankTerm>& terms) {
    return ops::rotate_adds(product, cos, layout, terms);
  });
  std::vector<ops::LoraProjection> adapters{projection(place, 0, layout.k_begin(), kIn, rank, 20)};
  if (!queries_alone) {
    adapters.push_back(projection(place, layout.k_begin(), layout.v_begin(), kIn, rank, 30));
    adapters.push_back(projection(place, layout.v_begin(), layout.width(), kIn, rank, 40));
  }
  at::Tensor qkv = ops::lora_linear(place.normal({tokens, kIn}, 2),
                                    ops::frozen_matrix(weight_of(place, layout.width(), kIn, 3)), /*bias=*/{},
                                    adapters, std::nullopt, /*low_rank=*/nullptr, &left);
  ops::rotate(qkv, cos, sin, layout, left.terms);
  return {{"queries, keys and values", qkv}};
}

ops::FrozenMatrix dense(const Place& place, std::int64_t out, std::int64_t in) {
  return ops::frozen_matrix(weight_of(place, out, in, 10));
}

ops::FrozenMatrix quantized(const Place& place, std::int64_t out, std::int64_t in,
                            const precision::Quantization& how) {
  const Place on_host{.device = at::kCPU, .rounded = at::kFloat, .dtype = at::kFloat};
  ops::FrozenMatrix matrix = ops::quantized_matrix(weight_of(on_host, out, in, 10), how);
  matrix.bytes = matrix.bytes.to(place.device);
  return matrix;
}

// Both operands in fp8. In other dtypes than bf16 the codes are multiplied as numbers.
Results float8_product(const Place& place) {
  const precision::Float8 how;
  const at::Tensor x = place.normal({33, 128}, 1);
  at::Tensor out = at::empty({33, 96}, x.options());
  ops::float8_forward(out, x, quantized(place, 96, 128, how), how, /*terms=*/{}, /*bias=*/{});
  // As the second of a group's modules.
  const at::Tensor wide = at::zeros({33, 160}, x.options());
  at::Tensor columns = wide.slice(1, 64);
  ops::float8_forward(columns, x, quantized(place, 96, 128, how), how, /*terms=*/{}, /*bias=*/{});
  return {{"x w^T", out}, {"x w^T beside other columns", wide}};
}

Results decoded(const Place& place, const precision::Quantization& how) {
  const ops::FrozenMatrix matrix = quantized(place, 37, 129, how);
  return {{"numbers", matrix.format->rows(matrix, 0, 37, place.rounded)},
          {"a part of them", matrix.format->rows(matrix, 3, 11, place.rounded)}};
}

}  // namespace

std::vector<OperatorCase> product_cases() {
  std::vector<OperatorCase> cases;
  constexpr std::array<std::int64_t, 3> kSizes[] = {{33, 65, 129}, {1, 512, 64}, {256, 128, 256}};
  for (const auto& size : kSizes) {
    cases.push_back(
        {"matrix product",
         std::to_string(size[0]) + " x " + std::to_string(size[1]) + " x " + std::to_string(size[2]),
         [size](const Place& at) { return products(at, size[0], size[1], size[2]); }});
  }
  cases.push_back({"matrix product", "rows in wider ones", strided_products});
  for (const double dropout : {0.0, 0.3}) {
    const std::string with = dropout > 0 ? " with dropout" : "";
    cases.push_back({"linear with LoRA", "48 x 96 x 72 with a bias" + with, [dropout](const Place& at) {
                       return lora(at, dense(at, 96, 72), 48, /*bias=*/true, dropout);
                     }});
    cases.push_back({"linear with LoRA", "17 x 69 x 65" + with, [dropout](const Place& at) {
                       return lora(at, dense(at, 69, 65), 17, /*bias=*/false, dropout);
                     }});
  }
  for (const bool bias : {false, true}) {
    cases.push_back({"linear with LoRA",
                     std::string("48 x 96 x 72 with adapters everywhere") + (bias ? " and a bias" : ""),
                     [bias](const Place& at) {
                       return lora(at, dense(at, 96, 72), 48, bias, /*dropout=*/0, /*everywhere=*/true);
                     }});
  }
  cases.push_back({"linear with LoRA", "one row, 96 x 72",
                   [](const Place& at) { return lora(at, dense(at, 96, 72), 1, /*bias=*/false, 0); }});
  for (const std::int64_t rank : {8, 16}) {
    cases.push_back({"linear with LoRA",
                     "1,100 x 216 x 64, ranks of " + std::to_string(rank) + " side by side",
                     [rank](const Place& at) { return lora_of_store(at, 1100, rank); }});
  }
  for (const std::int64_t rank : {8, 16}) {
    cases.push_back(
        {"linear with LoRA",
         "37 x 72 x 264 and back, ranks of " + std::to_string(rank) + " around a gated activation",
         [rank](const Place& at) { return gated_block(at, 37, 264, rank); }});
  }
  cases.push_back({"linear with LoRA", "300 x 72 x 264 and back, the gated product written again",
                   [](const Place& at) { return gated_block(at, 300, 264, 16, /*sums=*/false); }});
  // More rows than a launch has blocks for.
  cases.push_back({"linear with LoRA", "40,000 x 72 x 8 and back, ranks of 16 around a gated activation",
                   [](const Place& at) { return gated_block(at, 40000, 8, 16); }});
  for (const std::int64_t rank : {8, 16}) {
    cases.push_back({"linear with LoRA", "37 x 72 and rotary, ranks of " + std::to_string(rank),
                     [rank](const Place& at) { return rotated_block(at, 37, rank); }});
  }
  cases.push_back({"linear with LoRA", "37 x 72 and rotary, rank of 16 of the queries alone",
                   [](const Place& at) { return rotated_block(at, 37, 16, /*queries_alone=*/true); }});
  for (const auto& [width, rank] : {std::pair{72, 8}, std::pair{2568, 16}, std::pair{8192, 16}}) {
    cases.push_back({"linear with LoRA",
                     "37 x 72 x " + std::to_string(width) + " and a norm, rank of " + std::to_string(rank),
                     [=](const Place& at) { return residual_block(at, 37, width, rank); }});
  }
  cases.push_back({"linear with LoRA", "37 x 72 x 4544 and a layer norm, rank of 16",
                   [](const Place& at) { return residual_block(at, 37, 4544, 16, ops::NormKind::kLayer); }});
  cases.push_back({"DoRA's norms", "69 x 65", [](const Place& at) {
                     return Results{
                         {"norms", ops::dora_norms(dense(at, 69, 65), {projection(at, 0, 69, 65, 8, 20)})}};
                   }});
  const std::pair<const char*, precision::Quantization> stored[] = {{"4-bit weights", precision::FourBits{}},
                                                                    {"fp8 weights", precision::Float8{}}};
  for (const auto& [name, how] : stored) {
    cases.push_back({name, "decoded, 37 x 129", [how = how](const Place& at) { return decoded(at, how); }});
    cases.push_back({name, "linear with LoRA, 33 x 96 x 128", [how = how](const Place& at) {
                       return lora(at, quantized(at, 96, 128, how), 33, /*bias=*/false, 0);
                     }});
  }
  constexpr int kAda = 89;
  cases.push_back({"fp8 weights", "product in fp8, 33 x 96 x 128", float8_product, kAda});
  return cases;
}

}  // namespace lorikeet::probe
