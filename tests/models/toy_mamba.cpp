// A toy model of Granite 4 H's forms, and its formulas written out by plain ATen calls: these share nothing
// with the blocks.
#include <ATen/ATen.h>

#include <string>

#include "models/toy_family.h"

namespace lorikeet::test {
namespace {

constexpr std::int64_t kHidden = 24, kIntermediate = 20, kHeads = 4, kKvHeads = 2, kHeadDim = 8;
constexpr std::int64_t kExperts = 3, kExpertWidth = 10;
constexpr double kEps = 1e-5, kResidual = 0.7, kScale = 0.5;

// Of layer 0 and layer 2.
constexpr ops::StateSpaceLayout kGrouped{.heads = 4, .head_dim = 5, .groups = 2, .state_dim = 6};
constexpr ops::StateSpaceLayout kPlain{.heads = 2, .head_dim = 7, .groups = 1, .state_dim = 3};

nn::NormSpec norm_spec(const std::string& name) { return {name, kHidden, kEps}; }

nn::DecoderLayerSpec layer(std::int64_t index) {
  const std::string prefix = "transformer.h." + std::to_string(index);
  return {.index = index,
          .attention = {.prefix = prefix + ".attn",
                        .hidden_size = kHidden,
                        .layout = {kHeads, kKvHeads, kHeadDim},
                        .options = {.scale = kScale},
                        .names = {.q = "query", .k = "key", .v = "value", .output = "dense"}},
          .mlp = {.prefix = prefix + ".ffn",
                  .hidden_size = kHidden,
                  .intermediate_size = kIntermediate,
                  .names = {.gate = "w1", .up = "w3", .down = "w2"},
                  .fused_gate_up = nn::FusedModule{"w13"}},
          .attention_norm = norm_spec(prefix + ".ln_1"),
          .mlp_norm = norm_spec(prefix + ".ln_2"),
          .rotary = nn::LayerRotary::kNone,
          .residual_multiplier = kResidual};
}

void add_mamba(nn::DecoderLayerSpec& layer, const ops::StateSpaceLayout& layout, bool grouped) {
  layer.mamba2 = nn::Mamba2Spec{.prefix = layer.attention.prefix,
                                .hidden_size = kHidden,
                                .layout = layout,
                                .taps = grouped ? 3 : 4,
                                .norm_eps = kEps,
                                .norm_groups = layout.groups,
                                .convolution_bias = grouped,
                                .bias = !grouped,
                                .names = {.input = "in", .output = "dense", .convolution = "conv"}};
}

// Experts beside the layer's MLP.
void add_experts(nn::DecoderLayerSpec& layer) {
  layer.experts = nn::ExpertsSpec{
      .prefix = "transformer.h." + std::to_string(layer.index),
      .hidden_size = kHidden,
      .intermediate_size = kExpertWidth,
      .count = kExperts,
      .router = {.per_token = 2},
      .names = {.router = "moe.router", .experts = "moe.experts", .gate = "w1", .up = "w3", .down = "w2"},
      .shared = nn::SharedExpertSpec{.intermediate_size = kIntermediate,
                                     .name = "ffn",
                                     .gate = "",
                                     .modules = layer.mlp.names,
                                     .fused_gate_up = layer.mlp.fused_gate_up}};
}

at::Tensor unit(const at::Tensor& x) { return x / at::sqrt(at::mean(x * x, -1, true) + kEps); }

at::Tensor norm(const State& state, const std::string& name, const at::Tensor& x) {
  return unit(x) * state.at(name + ".weight");
}

at::Tensor linear(const State& state, const std::string& name, const at::Tensor& x) {
  const at::Tensor y = at::matmul(x, state.at(name + ".weight").t());
  const auto bias = state.find(name + ".bias");
  return bias == state.end() ? y : y + bias->second;
}

at::Tensor swish(const at::Tensor& x) { return x * at::sigmoid(x); }

at::Tensor fused_mlp(const State& state, const std::string& prefix, const at::Tensor& x) {
  const at::Tensor both = linear(state, prefix + ".w13", x);
  return linear(state, prefix + ".w2",
                swish(both.narrow(1, 0, kIntermediate)) * both.narrow(1, kIntermediate, kIntermediate));
}

// Two experts of three, weighted by the softmax of their logits, and the MLP.
at::Tensor experts_and_mlp(const State& state, const std::string& h, const at::Tensor& x) {
  const at::Tensor logits = linear(state, h + ".moe.router", x);
  const at::Tensor second = std::get<0>(at::topk(logits, 2)).narrow(1, 1, 1);
  const at::Tensor exps = at::exp(logits) * logits.ge(second);
  const at::Tensor weights = exps / exps.sum(1, true);
  at::Tensor y = fused_mlp(state, h + ".ffn", x);
  for (std::int64_t e = 0; e < kExperts; ++e) {
    const std::string expert = h + ".moe.experts." + std::to_string(e);
    const at::Tensor hidden = swish(linear(state, expert + ".w1", x)) * linear(state, expert + ".w3", x);
    y = y + weights.narrow(1, e, 1) * linear(state, expert + ".w2", hidden);
  }
  return y;
}

at::Tensor attention(const State& state, const std::string& prefix, const at::Tensor& x) {
  const std::int64_t length = x.size(0);
  const at::Tensor q = linear(state, prefix + ".query", x), k = linear(state, prefix + ".key", x),
                   v = linear(state, prefix + ".value", x);
  const at::Tensor later = at::triu(at::ones({length, length}, x.options()), 1).to(at::kBool);
  std::vector<at::Tensor> outputs;
  for (std::int64_t h = 0; h < kHeads; ++h) {
    const std::int64_t group = h / (kHeads / kKvHeads);
    const at::Tensor scores =
        kScale * at::matmul(q.narrow(1, h * kHeadDim, kHeadDim), k.narrow(1, group * kHeadDim, kHeadDim).t());
    const at::Tensor weights = at::exp(scores).masked_fill(later, 0);
    outputs.push_back(at::matmul(weights / weights.sum(1, true), v.narrow(1, group * kHeadDim, kHeadDim)));
  }
  return linear(state, prefix + ".dense", at::cat(outputs, 1));
}

// The recurrence token by token.
at::Tensor mamba(const State& state, const std::string& prefix, const at::Tensor& x,
                 const ops::StateSpaceLayout& layout) {
  const auto [heads, head_dim, groups, state_dim] = layout;
  const std::int64_t length = x.size(0), inner = heads * head_dim, channels = inner + 2 * groups * state_dim;
  const at::Tensor all = linear(state, prefix + ".in", x);
  const at::Tensor raw = all.narrow(1, inner, channels);
  const at::Tensor taps = state.at(prefix + ".conv.weight").squeeze(1);
  const std::int64_t before = taps.size(1) - 1;
  const at::Tensor padded = at::cat({at::zeros({before, channels}, raw.options()), raw});
  at::Tensor sum = at::zeros_like(raw);
  for (std::int64_t tap = 0; tap <= before; ++tap)
    sum = sum + padded.narrow(0, tap, length) * taps.select(1, tap);
  if (const auto bias = state.find(prefix + ".conv.bias"); bias != state.end()) sum = sum + bias->second;
  const at::Tensor xbc = swish(sum);
  const at::Tensor step =
      at::log1p(at::exp(all.narrow(1, inner + channels, heads) + state.at(prefix + ".dt_bias")));
  const at::Tensor pace = at::exp(state.at(prefix + ".A_log")), skip = state.at(prefix + ".D");
  std::vector<at::Tensor> outputs;
  for (std::int64_t h = 0; h < heads; ++h) {
    const std::int64_t group = h / (heads / groups);
    at::Tensor s = at::zeros({state_dim, head_dim}, x.options());
    std::vector<at::Tensor> rows;
    for (std::int64_t t = 0; t < length; ++t) {
      const at::Tensor u = xbc[t].narrow(0, h * head_dim, head_dim);
      const at::Tensor b = xbc[t].narrow(0, inner + group * state_dim, state_dim);
      const at::Tensor c = xbc[t].narrow(0, inner + (groups + group) * state_dim, state_dim);
      s = at::exp(-step[t][h] * pace[h]) * s + at::outer(b, step[t][h] * u);
      rows.push_back(at::matmul(c, s) + skip[h] * u);
    }
    outputs.push_back(at::stack(rows));
  }
  const at::Tensor gated = at::cat(outputs, 1) * swish(all.narrow(1, 0, inner));
  const at::Tensor normed = unit(gated.reshape({length, groups, inner / groups})).reshape({length, inner});
  return linear(state, prefix + ".dense", normed * state.at(prefix + ".norm.weight"));
}

}  // namespace

nn::CausalLMSpec toy_mamba_spec() {
  nn::CausalLMSpec spec = toy_spec();
  spec.layers = {layer(0), layer(1), layer(2)};
  add_mamba(spec.layers[0], kGrouped, /*grouped=*/true);
  add_mamba(spec.layers[2], kPlain, /*grouped=*/false);
  add_experts(spec.layers[2]);
  spec.rotary.reset();
  return spec;
}

at::Tensor toy_mamba_logits(const State& state, const std::vector<std::int32_t>& tokens) {
  const std::vector<std::int64_t> ids(tokens.begin(), tokens.end());
  at::Tensor x = state.at("transformer.wte.weight").index_select(0, at::tensor(ids)) * 1.7;
  for (const char number : {'0', '1', '2'}) {
    const std::string h = std::string("transformer.h.") + number;
    const at::Tensor n = norm(state, h + ".ln_1", x);
    x = x + kResidual * (number == '0'   ? mamba(state, h + ".attn", n, kGrouped)
                         : number == '1' ? attention(state, h + ".attn", n)
                                         : mamba(state, h + ".attn", n, kPlain));
    const at::Tensor m = norm(state, h + ".ln_2", x);
    x = x + kResidual * (number == '2' ? experts_and_mlp(state, h, m) : fused_mlp(state, h + ".ffn", m));
  }
  const at::Tensor last = unit(x) * (1 + state.at("transformer.ln_f.weight"));
  return 3 * at::tanh(0.5 * linear(state, "output", last) / 3);
}

}  // namespace lorikeet::test
