#include <ATen/ATen.h>

#include "ops/activation/activation.h"
#include "ops/latent_heads/latent_heads.h"
#include "ops/lora/dora.h"
#include "ops/lora/dropout.h"
#include "ops/rotary/rotary.h"
#include "probe/operators/cases.h"

namespace lorikeet::probe {
namespace {

using ops::Activation;

// Cosines and sines of random angles, [tokens, half], rounded to fp32 in every dtype, as a run's table is.
std::pair<at::Tensor, at::Tensor> turns(const Place& place, std::int64_t half, std::int64_t tokens) {
  const at::Tensor angles = place.wide_normal({tokens, half}, 1);
  const auto table = [&](const at::Tensor& values) { return values.to(at::kFloat).to(place.wide()); };
  return {table(angles.cpu().cos()).to(place.device), table(angles.cpu().sin()).to(place.device)};
}

Results rotary(const Place& place, const ops::HeadLayout& layout, std::int64_t half, std::int64_t tokens) {
  const auto [cosine, sine] = turns(place, half, tokens);
  at::Tensor qkv = place.normal({tokens, layout.width()}, 2);
  ops::rotate(qkv, cosine, sine, layout);
  const auto heads = [&](std::int64_t count, std::uint64_t seed) {
    return place.normal({tokens, count, layout.head_dim}, seed);
  };
  const ops::HeadGradients gradients{heads(layout.heads, 3), heads(layout.kv_heads, 4),
                                     heads(layout.kv_heads, 5)};
  return {{"output", qkv}, {"gradient", ops::rotate_backward(gradients, cosine, sine, layout)}};
}

void add_rotary(std::vector<OperatorCase>& cases) {
  struct Form {
    const char* name;
    ops::HeadLayout layout;
    std::int64_t half, tokens;
  };
  constexpr Form kForms[] = {{"grouped heads of 128", {8, 2, 128}, 64, 19},
                             {"a part of each head", {4, 2, 16}, 3, 19},
                             {"interleaved heads", {8, 2, 128, true}, 64, 19},
                             {"an interleaved part of each head", {4, 2, 64, true}, 16, 19},
                             {"one token", {4, 4, 64}, 32, 1},
                             {"odd head_dim", {3, 1, 21}, 10, 7},
                             {"no tokens", {4, 2, 16}, 8, 0}};
  for (const Form& form : kForms) {
    cases.push_back({"rotary", form.name,
                     [=](const Place& at) { return rotary(at, form.layout, form.half, form.tokens); }});
  }
}

// The parts lie in wider rows, as in a model.
Results latent_heads(const Place& place, const ops::LatentLayout& layout, std::int64_t tokens) {
  const auto [cosine, sine] = turns(place, layout.rotary_dim / 2, tokens);
  const std::vector<std::int64_t> widths{layout.query_width(), layout.key_value_width(), layout.rotary_dim};
  const auto parts_of = [&](const at::Tensor& rows) {
    const auto parts = rows.split_with_sizes(widths, 1);
    return ops::LatentParts{parts[0], parts[1], parts[2]};
  };
  const at::Tensor rows = place.normal({tokens, widths[0] + widths[1] + widths[2]}, 2);
  const at::Tensor packed = ops::latent_heads(parts_of(rows), cosine, sine, layout);
  const at::Tensor gradient = at::empty_like(rows);
  const auto heads = [&](std::uint64_t seed) {
    return place.normal({tokens, layout.heads, layout.head_dim()}, seed);
  };
  ops::latent_heads_backward({heads(3), heads(4), heads(5)}, cosine, sine, layout, parts_of(gradient));
  return {{"output", packed}, {"gradient", gradient}};
}

void add_latent_heads(std::vector<OperatorCase>& cases) {
  struct Form {
    const char* name;
    ops::LatentLayout layout;
    std::int64_t tokens;
  };
  constexpr Form kForms[] = {
      {"DeepSeek's heads", {16, 128, 64, 128, true}, 65}, {"GLM's heads", {20, 192, 64, 256, true}, 19},
      {"rotated halves", {5, 64, 32, 64, false}, 19},     {"odd sizes", {3, 5, 6, 13, true}, 7},
      {"one token", {16, 128, 64, 128, true}, 1},         {"no tokens", {2, 8, 16, 8, true}, 0}};
  for (const Form& form : kForms) {
    cases.push_back({"latent heads", form.name,
                     [=](const Place& at) { return latent_heads(at, form.layout, form.tokens); }});
  }
}

Results gated(const Place& place, Activation kind, std::int64_t tokens, std::int64_t width) {
  at::Tensor gate_up = place.normal({tokens, 2 * width}, 1, /*scale=*/3);
  const at::Tensor y = ops::gated_activation(gate_up, kind);
  ops::gated_activation_backward_(place.normal({tokens, width}, 2), gate_up, kind);
  return {{"output", y}, {"gradient of gate and up", gate_up}};
}

Results plain(const Place& place, Activation kind, std::int64_t tokens, std::int64_t width) {
  at::Tensor x = place.normal({tokens, width}, 1, /*scale=*/3);
  const at::Tensor y = ops::activation(x, kind);
  ops::activation_backward_(place.normal({tokens, width}, 2), x, kind);
  return {{"output", y}, {"gradient of x", x}};
}

void add_activations(std::vector<OperatorCase>& cases) {
  constexpr std::pair<const char*, Activation> kKinds[] = {{"silu", Activation::kSilu},
                                                           {"gelu by tanh", Activation::kGeluTanh},
                                                           {"gelu", Activation::kGelu},
                                                           {"clamped swiglu", Activation::kClampedSwiglu}};
  constexpr std::pair<std::int64_t, std::int64_t> kSizes[] = {{11, 67}, {5, 2048}, {1, 8}, {0, 16}};
  for (const auto& named : kKinds) {
    const Activation kind = named.second;
    for (const auto& size : kSizes) {
      const std::int64_t tokens = size.first, width = size.second;
      const std::string form =
          std::string(named.first) + ", " + std::to_string(tokens) + " x " + std::to_string(width);
      cases.push_back(
          {"activation", "gated " + form, [=](const Place& at) { return gated(at, kind, tokens, width); }});
      if (kind == Activation::kClampedSwiglu) continue;  // a function of gate and up
      cases.push_back({"activation", form, [=](const Place& at) { return plain(at, kind, tokens, width); }});
    }
  }
}

Results scaled_columns(const Place& place, std::int64_t tokens, std::int64_t columns, bool bias) {
  const at::Tensor x = place.normal({tokens, columns}, 1), factors = place.wide_normal({columns}, 2);
  const at::Tensor y = ops::scale_columns(x, factors, bias ? place.normal({columns}, 3) : at::Tensor());
  const auto back = ops::scale_columns_backward(place.normal({tokens, columns}, 4), x, factors);
  return {{"output", y}, {"gradient of x", back.dx}, {"gradient of the factors", back.factors}};
}

Results dropout(const Place& place, std::int64_t tokens, std::int64_t features) {
  const at::Tensor rows = at::arange(tokens, at::kLong);
  const ops::LoraDropout mask{.p = 0.3,
                              .seed = 42,
                              .step = 7,
                              .group = 3,
                              .sample_ids = rows.div(10, "floor").to(place.device),
                              .position_ids = rows.remainder(10).to(place.device)};
  return {{"output", ops::apply_dropout(place.normal({tokens, features}, 1), mask)}};
}

}  // namespace

std::vector<OperatorCase> elementwise_cases() {
  std::vector<OperatorCase> cases;
  add_rotary(cases);
  add_latent_heads(cases);
  add_activations(cases);
  for (const bool bias : {false, true}) {
    cases.push_back({"DoRA's columns", bias ? "50 x 43 with a bias" : "50 x 43",
                     [=](const Place& at) { return scaled_columns(at, 50, 43, bias); }});
  }
  for (const std::int64_t features : {37, 256}) {
    cases.push_back({"dropout", "33 x " + std::to_string(features),
                     [=](const Place& at) { return dropout(at, 33, features); }});
  }
  return cases;
}

}  // namespace lorikeet::probe
