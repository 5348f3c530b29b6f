#include "models/toy_family.h"

#include <ATen/ATen.h>
#include <ATen/CPUGeneratorImpl.h>

#include "nn/reorder_rows.h"

namespace lorikeet::test {
namespace {

constexpr std::int64_t kHidden = 24, kHeads = 4, kKvHeads = 2, kHeadDim = 8, kIntermediate = 20, kVocab = 37;
constexpr double kEps = 1e-5;

nn::NormSpec norm(const std::string& name) { return {name, kHidden, kEps, /*unit_offset=*/true}; }

nn::DecoderLayerSpec layer(std::int64_t index) {
  const std::string prefix = "transformer.h." + std::to_string(index);
  return {.index = index,
          .attention = {.prefix = prefix + ".attn",
                        .hidden_size = kHidden,
                        .layout = {kHeads, kKvHeads, kHeadDim},
                        .options = {.scale = 0.5},
                        .names = {.q = "query", .k = "key", .v = "value", .output = "dense"}},
          .mlp = {.prefix = prefix + ".ffn",
                  .hidden_size = kHidden,
                  .intermediate_size = kIntermediate,
                  .names = {.gate = "w1", .up = "w3", .down = "w2"}},
          .attention_norm = norm(prefix + ".ln_1")};
}

}  // namespace

nn::CausalLMSpec toy_spec() {
  nn::DecoderLayerSpec first = layer(0), second = layer(1), third = layer(2);
  first.parallel = true;
  first.attention.qkv_bias = true;
  first.attention.options.window = 3;
  first.mlp.activation = ops::Activation::kGelu;

  second.rotary = nn::LayerRotary::kNone;
  second.attention.output_bias = true;
  second.attention.options.soft_cap = 2;
  second.mlp.bias = true;
  second.mlp.activation = ops::Activation::kGeluTanh;
  second.post_attention_norm = norm("transformer.h.1.ln_2");
  second.mlp_norm = norm("transformer.h.1.ln_3");
  second.post_mlp_norm = norm("transformer.h.1.ln_4");

  third.parallel = true;
  third.post_attention_norm = norm("transformer.h.2.ln_2");
  third.post_mlp_norm = norm("transformer.h.2.ln_4");

  const std::int64_t linear_parameters =
      3 * (kHidden * kHeadDim * 2 * (kHeads + kKvHeads) + 3 * kHidden * kIntermediate);
  return {
      .shape = {.layers = 3,
                .hidden_size = kHidden,
                .heads = kHeads,
                .kv_heads = kKvHeads,
                .head_dim = kHeadDim,
                .intermediate_size = kIntermediate,
                .vocab_size = kVocab,
                .max_position = 64,
                .layer_linear_parameters = linear_parameters,
                .output_row_parameters = kHidden * (kHeadDim * kHeads + 3 * kIntermediate)},
      .embedding_name = "transformer.wte",
      .embedding_scale = 1.7,
      .rotary = nn::RotarySpec{.head_dim = kHeadDim,
                               .rotary_dim = 4,
                               .theta = 100,
                               .original_max_position = 3,
                               .query_beta = 0.4},
      .layers = {first, second, third},
      .final_norm = norm("transformer.ln_f"),
      .head = {.name = "output", .hidden_size = kHidden, .vocab_size = kVocab, .soft_cap = 3, .scale = 0.5}};
}

nn::CausalLMSpec toy_forms_spec() {
  nn::DecoderLayerSpec neox = layer(0), gemma = layer(1), olmo = layer(2), granite = layer(3),
                       mixture = layer(4), delta = layer(5);
  const auto layer_norm = [](const std::string& name, bool bias) {
    return nn::NormSpec{name, kHidden, kEps, false, ops::NormKind::kLayer, bias};
  };
  neox.parallel = true;
  neox.attention_norm = layer_norm("transformer.h.0.ln_1", true);
  neox.mlp_norm = layer_norm("transformer.h.0.ln_2", true);
  neox.mlp.gated = false;
  neox.mlp.bias = true;
  neox.mlp.activation = ops::Activation::kGelu;

  gemma.post_attention_norm = norm("transformer.h.1.ln_2");
  gemma.mlp_norm = norm("transformer.h.1.ln_3");
  gemma.post_mlp_norm = norm("transformer.h.1.ln_4");
  const auto qk_norm = [](const std::string& prefix, std::int64_t q, std::int64_t k, bool unit_offset) {
    return nn::QkNormSpec{{prefix + ".q_norm", q, kEps, unit_offset},
                          {prefix + ".k_norm", k, kEps, unit_offset}};
  };
  gemma.attention.qk_norm = qk_norm("transformer.h.1.attn", kHeadDim, kHeadDim, true);

  olmo.rotary = nn::LayerRotary::kLocal;
  olmo.attention_norm.reset();
  olmo.post_attention_norm = norm("transformer.h.2.ln_2");
  olmo.post_mlp_norm = norm("transformer.h.2.ln_4");
  olmo.attention.qk_norm = qk_norm("transformer.h.2.attn", kHeads * kHeadDim, kKvHeads * kHeadDim, false);

  granite.attention_norm = layer_norm("transformer.h.3.ln_1", false);
  granite.mlp_norm = norm("transformer.h.3.ln_2");
  granite.residual_multiplier = 0.6;
  granite.rotary = nn::LayerRotary::kNone;
  granite.attention.sinks = true;
  granite.mlp.activation = ops::Activation::kClampedSwiglu;

  mixture.mlp_norm = norm("transformer.h.4.ln_2");
  mixture.experts =
      nn::ExpertsSpec{.prefix = "transformer.h.4.ffn",
                      .hidden_size = kHidden,
                      .intermediate_size = kIntermediate / 2,
                      .count = 3,
                      .router = {.per_token = 2},
                      .names = {.gate = "w1", .up = "w3", .down = "w2"},
                      .shared = nn::SharedExpertSpec{.intermediate_size = kIntermediate / 2 - 2,
                                                     .name = "shared",
                                                     .gate = "shared_gate",
                                                     .modules = {.gate = "w1", .up = "w3", .down = "w2"}}};
  mixture.attention.output_gate = true;

  delta.mlp_norm = norm("transformer.h.5.ln_2");
  delta.delta_net = nn::GatedDeltaNetSpec{
      .prefix = "transformer.h.5.attn",
      .hidden_size = kHidden,
      .layout = {.key_heads = 2, .value_heads = 4, .key_dim = 6, .value_dim = 5},
      .taps = 3,
      .norm_eps = kEps,
      .names = {.qkv = "qkv", .z = "z", .b = "b", .a = "a", .output = "dense", .convolution = "conv"}};

  nn::CausalLMSpec spec = toy_spec();
  spec.shape.layers = 6;
  spec.layers = {neox, gemma, olmo, granite, mixture, delta};
  spec.rotary = nn::RotarySpec{.head_dim = kHeadDim,
                               .rotary_dim = 4,
                               .theta = 100,
                               .scaling = nn::RotarySpec::Scaling::kLongrope,
                               .original_max_position = 3,
                               .short_factor = {1, 1.5},
                               .long_factor = {2, 4},
                               .attention_factor = 1.2};
  spec.local_rotary = nn::RotarySpec{
      .head_dim = kHeadDim, .rotary_dim = 4, .theta = 25, .original_max_position = 3, .query_beta = 0.7};
  return spec;
}

nn::CausalLMSpec toy_short_conv_spec() {
  nn::CausalLMSpec spec = toy_spec();
  spec.layers = {layer(0), layer(1), layer(2)};
  for (nn::DecoderLayerSpec& each : spec.layers) {
    const std::string prefix = "transformer.h." + std::to_string(each.index);
    each.mlp_norm = norm(prefix + ".ln_2");
    if (each.index == 1) {
      each.attention.qk_norm = {{prefix + ".attn.q_norm", kHeadDim, kEps, /*unit_offset=*/true},
                                {prefix + ".attn.k_norm", kHeadDim, kEps, /*unit_offset=*/true}};
    } else {
      each.short_conv = nn::ShortConvSpec{.prefix = prefix + ".attn",
                                          .hidden_size = kHidden,
                                          .taps = each.index == 0 ? 3 : 4,
                                          .names = {.input = "bcx", .output = "dense"}};
    }
  }
  return spec;
}

nn::CausalLMSpec toy_latent_spec() {
  nn::CausalLMSpec spec = toy_spec();
  spec.layers = {layer(0), layer(1), layer(2)};
  for (nn::DecoderLayerSpec& each : spec.layers) {
    each.mlp_norm = norm("transformer.h." + std::to_string(each.index) + ".ln_2");
    if (each.index == 1) continue;
    const bool last = each.index == 2;
    const ops::LatentLayout layout{.heads = kHeads,
                                   .plain_dim = last ? 3 : 5,
                                   .rotary_dim = 4,
                                   .value_dim = last ? 11 : 6,
                                   .interleaved = last};
    each.attention.layout = layout.padded();
    each.attention.qkv_bias = each.attention.output_bias = !last;
    each.attention.latent = nn::LatentSpec{.layout = layout,
                                           .query_rank = last ? 0 : 10,
                                           .key_value_rank = last ? 6 : 7,
                                           .norm_eps = kEps,
                                           .names = {.q = "query",
                                                     .q_a = "query_down",
                                                     .q_norm = "query_norm",
                                                     .q_b = "query_up",
                                                     .kv_a = "latent",
                                                     .kv_norm = "latent_norm",
                                                     .kv_b = "key_value"}};
  }
  return spec;
}

std::vector<nn::CausalLMSpec> every_toy_spec() {
  return {toy_spec(),        toy_forms_spec(), toy_gemma4_spec(), toy_short_conv_spec(),
          toy_latent_spec(), toy_mamba_spec()};
}

precision::Policy fp32_policy() { return {.base_storage = DType::kF32, .compute = DType::kF32}; }

State toy_state(const nn::CausalLM& model, std::uint64_t seed) {
  State state;
  auto generator = at::make_generator<at::CPUGeneratorImpl>(seed);
  for (const auto& unit : model.store().units()) {
    for (const nn::WeightSegment& segment : unit->segments()) {
      state[segment.name] = at::randn(segment.shape, generator, at::TensorOptions(at::kFloat)) * 0.4;
    }
  }
  return state;
}

void fill(nn::CausalLM& model, const State& state, const nn::WeightShard& shard, bool on_host) {
  model.store().allocate(at::kCPU, shard, on_host);
  for (const auto& unit : model.store().units()) {
    for (std::size_t i = 0; i < unit->segments().size(); ++i) {
      const nn::WeightUnit::Held held = unit->held(i);
      if (!held.values.defined()) continue;
      const nn::WeightSegment& segment = unit->segments()[i];
      if (segment.quantized != nullptr) {
        const auto matrix = ops::quantized_matrix(state.at(segment.name), segment.quantized->quantization());
        held.values.copy_(matrix.bytes.slice(0, held.first, held.first + held.values.numel()));
        continue;
      }
      const at::Tensor flat = nn::to_group_order(state.at(segment.name), segment.order).flatten();
      held.values.copy_(flat.slice(0, held.first, held.first + held.values.numel()));
    }
  }
}

std::vector<std::vector<std::int32_t>> toy_prompts() {
  return {{3, 17, 9, 30, 1, 12, 25}, {36}, {5, 5, 8, 20}, {0, 33}};
}

}  // namespace lorikeet::test
