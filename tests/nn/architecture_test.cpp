#include "nn/architecture.h"

#include <algorithm>

#include "models/toy_family.h"
#include "support/catch.h"

using namespace lorikeet;
using namespace lorikeet::nn;
using test::toy_spec;

namespace {

std::string value(const Architecture& lines, const std::string& name) {
  const auto found = std::ranges::find(lines, name, &Architecture::value_type::first);
  return found == lines.end() ? "" : found->second;
}

// Whether a change of the spec changes its architecture.
template <typename Change>
bool shows(const Change& change) {
  CausalLMSpec spec = toy_spec();
  change(spec);
  return architecture(spec) != architecture(toy_spec());
}

}  // namespace

TEST_CASE("an architecture lists what decides numbers, and layers that are alike once") {
  CausalLMSpec spec = toy_spec();
  spec.layers = {spec.layers[0], spec.layers[0], spec.layers[1]};
  const Architecture lines = architecture(spec);
  CHECK(value(lines, "hidden_size") == "24");
  CHECK(value(lines, "rotary.theta") == "100");
  CHECK(value(lines, "rotary.dim") == "4");
  CHECK(value(lines, "final_norm.eps") == "1e-05");
  CHECK(value(lines, "head.soft_cap") == "3");
  CHECK(value(lines, "layers 0-1 attention.window") == "3");
  CHECK(value(lines, "layers 0-1 mlp.activation") == "gelu");
  CHECK(value(lines, "layers 2-2 attention.soft_cap") == "2");
  CHECK(value(lines, "layers 2-2 rotary") == "false");
  CHECK(value(lines, "layers 2-2 attention.window").empty());  // off
}

TEST_CASE("whatever changes a model's numbers changes its architecture") {
  CHECK(shows([](CausalLMSpec& s) { s.rotary->theta = 101; }));
  CHECK(shows([](CausalLMSpec& s) { s.rotary.reset(); }));
  CHECK(shows([](CausalLMSpec& s) { s.rotary->scaling = RotarySpec::Scaling::kLinear; }));
  CHECK(shows([](CausalLMSpec& s) { s.embedding_scale = 1.71; }));
  CHECK(shows([](CausalLMSpec& s) { s.embedding_scale_rounded = true; }));
  CHECK(shows([](CausalLMSpec& s) { s.local_rotary = RotarySpec{.head_dim = 8, .rotary_dim = 8}; }));
  CHECK(shows([](CausalLMSpec& s) { s.layers[0].rotary = LayerRotary::kLocal; }));
  CHECK(shows([](CausalLMSpec& s) { s.shape.tied_head = true; }));
  CHECK(shows([](CausalLMSpec& s) { s.final_norm.eps = 1e-6; }));
  CHECK(shows([](CausalLMSpec& s) { s.final_norm.unit_offset = false; }));
  CHECK(shows([](CausalLMSpec& s) { s.head.scale = 0.25; }));
  CHECK(shows([](CausalLMSpec& s) { s.layers[1].attention.layout.kv_heads = 4; }));
  CHECK(shows([](CausalLMSpec& s) { s.layers[2].attention.options.scale = 0.25; }));
  CHECK(shows([](CausalLMSpec& s) { s.layers[2].attention.layout.interleaved = true; }));
  CHECK(shows([](CausalLMSpec& s) { s.layers[2].attention.options.causal = false; }));
  CHECK(shows([](CausalLMSpec& s) { s.layers[0].attention.qkv_bias = false; }));
  CHECK(shows([](CausalLMSpec& s) { s.layers[1].post_mlp_norm.reset(); }));
  CHECK(shows([](CausalLMSpec& s) { s.layers[0].parallel = false; }));
  CHECK(shows([](CausalLMSpec& s) { s.layers[0].mlp.activation = ops::Activation::kSilu; }));
  CHECK(shows([](CausalLMSpec& s) { s.layers.pop_back(); }));
}

TEST_CASE("Gemma 4's settings stand in an architecture") {
  const Architecture lines = architecture(test::toy_gemma4_spec());
  CHECK(value(lines, "rotary.scaling") == "proportional");
  CHECK(value(lines, "rotary.factor") == "2");
  CHECK(value(lines, "rotary.rotated_pairs") == "3");
  CHECK(value(lines, "layers 0-0 attention.value_norm.eps") == "1e-05");
  CHECK(value(lines, "layers 0-0 attention.keys_as_values").empty());
  CHECK(value(lines, "layers 1-1 attention.keys_as_values") == "true");
  CHECK(value(lines, "layers 1-1 output_scale") == "true");
  CHECK(value(lines, "layers 2-2 output_scale").empty());
  CHECK(value(lines, "layers 0-0 attention.keys_of").empty());
  CHECK(value(lines, "layers 3-3 attention.keys_of") == "0");
  CHECK(value(lines, "layers 3-3 layer_input.width") == "5");
  CHECK(value(lines, "layers 3-3 layer_input.activation") == "gelu_tanh");
  CHECK(value(lines, "layers 3-3 layer_input.norm.eps") == "1e-05");
  CHECK(value(lines, "layer_inputs.vocab_size") == "40");
  CHECK(value(lines, "layer_inputs.norm.eps") == "1e-05");
  CHECK(value(lines, "layers 2-2 experts.weight_scales") == "true");
  CHECK(value(lines, "layers 2-2 experts.branch_norms.eps") == "1e-05");
  CHECK(value(lines, "layers 2-2 experts.shared.gated").empty());
  CHECK(value(lines, "layers 4-4 experts.shared.intermediate_size") == "40");
  CHECK(value(architecture(test::toy_forms_spec()), "layers 4-4 experts.weight_scales").empty());
  CHECK(value(architecture(test::toy_forms_spec()), "layers 4-4 experts.branch_norms.eps").empty());
  CHECK(value(architecture(toy_spec()), "layers 0-0 attention.value_norm.eps").empty());
}

TEST_CASE("longrope's factors change an architecture") {
  CausalLMSpec spec = toy_spec();
  spec.rotary->scaling = RotarySpec::Scaling::kLongrope;
  spec.rotary->short_factor = {1, 1};
  spec.rotary->long_factor = {1, 2};
  const Architecture before = architecture(spec);
  CHECK(value(before, "rotary.scaling") == "longrope");
  CHECK(value(before, "rotary.long_factor 1") == "2");
  const auto changes = [&](auto change) {
    CausalLMSpec other = spec;
    change(*other.rotary);
    return architecture(other) != before;
  };
  CHECK(changes([](RotarySpec& r) { r.short_factor[1] = 3; }));
  CHECK(changes([](RotarySpec& r) { r.long_factor[0] = 3; }));
  CHECK(changes([](RotarySpec& r) { r.attention_factor = 1.5; }));
  CHECK(changes([](RotarySpec& r) { r.original_max_position = 7; }));
}

TEST_CASE("yarn's numbers change an architecture, and so does a scale of the queries") {
  CausalLMSpec spec = toy_spec();
  spec.rotary->scaling = RotarySpec::Scaling::kYarn;
  const Architecture before = architecture(spec);
  CHECK(value(before, "rotary.scaling") == "yarn");
  const auto changes = [&](auto change) {
    CausalLMSpec other = spec;
    change(*other.rotary);
    return architecture(other) != before;
  };
  CHECK(changes([](RotarySpec& r) { r.factor = 3; }));
  CHECK(changes([](RotarySpec& r) { r.attention_factor = 1.5; }));
  CHECK(changes([](RotarySpec& r) { r.original_max_position = 7; }));
  CHECK(changes([](RotarySpec& r) { r.beta_fast = 16; }));
  CHECK(changes([](RotarySpec& r) { r.beta_slow = 2; }));
  CHECK(changes([](RotarySpec& r) { r.truncate = false; }));
  CHECK(changes([](RotarySpec& r) { r.query_beta = 0.1; }));
  CHECK(shows([](CausalLMSpec& s) { s.rotary->query_beta = 0.1; }));
}

TEST_CASE("the order of rows in fused modules is listed where it permutes them") {
  CHECK_FALSE(shows([](CausalLMSpec& s) { s.layers[0].attention.fused_qkv = FusedModule{"qkv", 1}; }));
  CHECK_FALSE(shows([](CausalLMSpec& s) { s.layers[0].mlp.fused_gate_up = FusedModule{"w13", 1}; }));
  CausalLMSpec spec = toy_spec();
  spec.layers[0].attention.fused_qkv = FusedModule{"qkv", 2};
  spec.layers[0].mlp.fused_gate_up = FusedModule{"w13", 4};
  const Architecture lines = architecture(spec);
  CHECK(value(lines, "layers 0-0 attention.qkv_rows") == "2 x (2,1,1) x 8");
  CHECK(value(lines, "layers 0-0 mlp.gate_up_rows") == "4 x (1,1) x 5");
  CHECK(lines.size() == architecture(toy_spec()).size() + 2);
  CHECK(value(lines, "layers 1-1 attention.qkv_rows").empty());
  spec = test::toy_forms_spec();
  CHECK(value(architecture(spec), "layers 5-5 delta_net.input_rows").empty());
  spec.layers[5].delta_net->fused = FusedDeltaNet{};
  CHECK(value(architecture(spec), "layers 5-5 delta_net.input_rows") == "2 x (6,6,10,10) x 1");
  CHECK(value(architecture(spec), "layers 5-5 delta_net.gate_rows") == "2 x (2,2) x 1");
}

TEST_CASE("experts stand in an architecture in place of the MLP, with all of their numbers") {
  const CausalLMSpec spec = test::toy_forms_spec();
  const Architecture before = architecture(spec);
  CHECK(value(before, "layers 4-4 experts.count") == "3");
  CHECK(value(before, "layers 4-4 experts.per_token") == "2");
  CHECK(value(before, "layers 4-4 experts.normalized") == "true");
  CHECK(value(before, "layers 4-4 experts.intermediate_size") == "10");
  CHECK(value(before, "layers 4-4 experts.activation") == "silu");
  CHECK(value(before, "layers 4-4 experts.shared.intermediate_size") == "8");
  CHECK(value(before, "layers 4-4 experts.shared.gated") == "true");
  CHECK(value(before, "layers 3-3 experts.count").empty());
  CHECK(value(before, "layers 4-4 mlp.activation").empty());
  const auto changes = [&](auto change) {
    CausalLMSpec other = spec;
    change(other.layers[4]);
    return architecture(other) != before;
  };
  CHECK(changes([](DecoderLayerSpec& l) { l.experts.reset(); }));
  CHECK(changes([](DecoderLayerSpec& l) { l.experts->count = 4; }));
  CHECK(changes([](DecoderLayerSpec& l) { l.experts->router.per_token = 1; }));
  CHECK(changes([](DecoderLayerSpec& l) { l.experts->router.normalized = false; }));
  CHECK(changes([](DecoderLayerSpec& l) { l.experts->router.scores = ops::RouterScores::kSigmoid; }));
  CHECK(changes([](DecoderLayerSpec& l) { l.experts->router.sum_eps = 1e-6; }));
  CHECK(changes([](DecoderLayerSpec& l) { l.experts->router.least_sum = 1e-12; }));
  CHECK(changes([](DecoderLayerSpec& l) { l.experts->router.scale = 2; }));
  CHECK(changes([](DecoderLayerSpec& l) { l.experts->router.groups = 3; }));
  CHECK_FALSE(changes([](DecoderLayerSpec& l) {
    l.experts->router.groups = l.experts->router.groups_per_token = 3;  // limits nothing
  }));
  CHECK(changes([](DecoderLayerSpec& l) { l.experts->choice_bias = {"x", {3}}; }));
  CHECK(changes([](DecoderLayerSpec& l) { l.experts->wide_router = true; }));
  CHECK(changes([](DecoderLayerSpec& l) { l.experts->intermediate_size = 8; }));
  CHECK(changes([](DecoderLayerSpec& l) { l.experts->activation = ops::Activation::kGelu; }));
  CHECK_FALSE(changes([](DecoderLayerSpec& l) { l.experts->prefix = "x"; }));
  CHECK(changes([](DecoderLayerSpec& l) { l.experts->shared.reset(); }));
  CHECK(changes([](DecoderLayerSpec& l) { l.experts->shared->intermediate_size = 9; }));
  CHECK(changes([](DecoderLayerSpec& l) { l.experts->shared->gate.clear(); }));
  CHECK_FALSE(changes([](DecoderLayerSpec& l) { l.experts->shared->gate = "x"; }));
  CHECK_FALSE(changes([](DecoderLayerSpec& l) { l.experts->shared->modules.gate = "x"; }));
  CHECK_FALSE(changes([](DecoderLayerSpec& l) { l.experts->names.gate = "gate"; }));
  CHECK_FALSE(changes([](DecoderLayerSpec& l) { l.mlp.activation = ops::Activation::kGelu; }));
}

TEST_CASE("a gated short convolution stands in an architecture in place of attention") {
  const CausalLMSpec spec = test::toy_short_conv_spec();
  const Architecture lines = architecture(spec);
  CHECK(value(lines, "layers 0-0 short_conv.taps") == "3");
  CHECK(value(lines, "layers 2-2 short_conv.taps") == "4");
  CHECK(value(lines, "layers 0-0 attention.heads").empty());
  CHECK(value(lines, "layers 1-1 short_conv.taps").empty());
  CHECK(value(lines, "layers 1-1 attention.heads") == "4");
}

TEST_CASE("a Mamba 2 layer stands in an architecture in place of attention, with all of its numbers") {
  const CausalLMSpec spec = test::toy_mamba_spec();
  const Architecture before = architecture(spec);
  CHECK(value(before, "layers 0-0 mamba2.heads") == "4");
  CHECK(value(before, "layers 0-0 mamba2.head_dim") == "5");
  CHECK(value(before, "layers 0-0 mamba2.groups") == "2");
  CHECK(value(before, "layers 0-0 mamba2.state_dim") == "6");
  CHECK(value(before, "layers 0-0 mamba2.taps") == "3");
  CHECK(value(before, "layers 0-0 mamba2.norm.eps") == "1e-05");
  CHECK(value(before, "layers 0-0 mamba2.norm.groups") == "2");
  CHECK(value(before, "layers 0-0 mamba2.convolution_bias") == "true");
  CHECK(value(before, "layers 0-0 mamba2.bias").empty());
  CHECK(value(before, "layers 0-0 attention.heads").empty());
  CHECK(value(before, "layers 0-0 rotary").empty());
  CHECK(value(before, "layers 1-1 mamba2.heads").empty());
  CHECK(value(before, "layers 1-1 attention.heads") == "4");
  CHECK(value(before, "layers 2-2 mamba2.convolution_bias").empty());
  CHECK(value(before, "layers 2-2 mamba2.bias") == "true");
  const auto changes = [&](auto change) {
    CausalLMSpec other = spec;
    change(other.layers[0].mamba2.value());
    return architecture(other) != before;
  };
  CHECK(changes([](Mamba2Spec& m) { m.layout.heads = 2; }));
  CHECK(changes([](Mamba2Spec& m) { m.layout.head_dim = 2; }));
  CHECK(changes([](Mamba2Spec& m) { m.layout.groups = 1; }));
  CHECK(changes([](Mamba2Spec& m) { m.layout.state_dim = 2; }));
  CHECK(changes([](Mamba2Spec& m) { m.taps = 2; }));
  CHECK(changes([](Mamba2Spec& m) { m.norm_eps = 1e-6; }));
  CHECK(changes([](Mamba2Spec& m) { m.norm_groups = 1; }));
  CHECK(changes([](Mamba2Spec& m) { m.convolution_bias = false; }));
  CHECK(changes([](Mamba2Spec& m) { m.bias = true; }));
  CHECK_FALSE(changes([](Mamba2Spec& m) { m.names.input = "x"; }));
}

TEST_CASE("latents stand in an architecture with all of their numbers") {
  const CausalLMSpec spec = test::toy_latent_spec();
  const Architecture before = architecture(spec);
  CHECK(value(before, "layers 0-0 attention.head_dim") == "9");
  CHECK(value(before, "layers 0-0 attention.latent.plain_dim") == "5");
  CHECK(value(before, "layers 0-0 attention.latent.rotary_dim") == "4");
  CHECK(value(before, "layers 0-0 attention.latent.value_dim") == "6");
  CHECK(value(before, "layers 0-0 attention.latent.query_rank") == "10");
  CHECK(value(before, "layers 0-0 attention.latent.key_value_rank") == "7");
  CHECK(value(before, "layers 0-0 attention.latent.norm.eps") == "1e-05");
  CHECK(value(before, "layers 0-0 attention.latent.interleaved").empty());
  CHECK(value(before, "layers 1-1 attention.latent.plain_dim").empty());
  CHECK(value(before, "layers 2-2 attention.latent.interleaved") == "true");
  CHECK(value(before, "layers 2-2 attention.latent.query_rank").empty());
  const auto changes = [&](auto change) {
    CausalLMSpec other = spec;
    change(other.layers[0].attention.latent.value());
    return architecture(other) != before;
  };
  CHECK(changes([](LatentSpec& l) { l.layout.plain_dim = 4; }));
  CHECK(changes([](LatentSpec& l) { l.layout.value_dim = 4; }));
  CHECK(changes([](LatentSpec& l) { l.layout.interleaved = true; }));
  CHECK(changes([](LatentSpec& l) { l.query_rank = 9; }));
  CHECK(changes([](LatentSpec& l) { l.key_value_rank = 9; }));
  CHECK(changes([](LatentSpec& l) { l.norm_eps = 1e-6; }));
  CHECK_FALSE(changes([](LatentSpec& l) { l.names.kv_a = "x"; }));
}

TEST_CASE("a gated delta net stands in an architecture in place of attention, with all of its numbers") {
  CausalLMSpec spec = toy_spec();
  spec.layers[2].delta_net = GatedDeltaNetSpec{
      .prefix = "x",
      .hidden_size = 24,
      .layout = {.key_heads = 2, .value_heads = 4, .key_dim = 6, .value_dim = 10},
      .taps = 3,
      .norm_eps = 1e-6,
  };
  const Architecture before = architecture(spec);
  CHECK(value(before, "layers 2-2 delta_net.key_heads") == "2");
  CHECK(value(before, "layers 2-2 delta_net.value_heads") == "4");
  CHECK(value(before, "layers 2-2 delta_net.key_dim") == "6");
  CHECK(value(before, "layers 2-2 delta_net.value_dim") == "10");
  CHECK(value(before, "layers 2-2 delta_net.taps") == "3");
  CHECK(value(before, "layers 2-2 delta_net.norm.eps") == "1e-06");
  CHECK(value(before, "layers 2-2 attention.heads").empty());
  CHECK(value(before, "layers 2-2 rotary").empty());
  CHECK(value(before, "layers 1-1 attention.heads") == "4");
  CHECK(value(before, "layers 1-1 delta_net.taps").empty());
  const auto changes = [&](auto change) {
    CausalLMSpec other = spec;
    change(other.layers[2]);
    return architecture(other) != before;
  };
  CHECK(changes([](DecoderLayerSpec& l) { l.delta_net.reset(); }));
  CHECK(changes([](DecoderLayerSpec& l) { l.delta_net->layout.key_heads = 4; }));
  CHECK(changes([](DecoderLayerSpec& l) { l.delta_net->layout.value_heads = 2; }));
  CHECK(changes([](DecoderLayerSpec& l) { l.delta_net->layout.key_dim = 5; }));
  CHECK(changes([](DecoderLayerSpec& l) { l.delta_net->layout.value_dim = 5; }));
  CHECK(changes([](DecoderLayerSpec& l) { l.delta_net->taps = 4; }));
  CHECK(changes([](DecoderLayerSpec& l) { l.delta_net->norm_eps = 1e-5; }));
  CHECK(changes([](DecoderLayerSpec& l) { l.mlp.intermediate_size = 4; }));
  CHECK_FALSE(changes([](DecoderLayerSpec& l) { l.delta_net->prefix = "y"; }));
  CHECK_FALSE(changes([](DecoderLayerSpec& l) { l.delta_net->names.qkv = "qkv"; }));
  CHECK_FALSE(changes([](DecoderLayerSpec& l) { l.attention.options.window = 7; }));
  CHECK_FALSE(changes([](DecoderLayerSpec& l) { l.rotary = LayerRotary::kLocal; }));
}

TEST_CASE("a gate behind attention is listed, with the rows of q that it takes") {
  CausalLMSpec spec = toy_spec();
  spec.layers[0].attention.output_gate = true;
  const Architecture lines = architecture(spec);
  CHECK(value(lines, "layers 0-0 attention.output_gate") == "true");
  CHECK(value(lines, "layers 0-0 attention.qkv_rows") == "4 x (1,1) x 8");
  CHECK(value(lines, "layers 1-1 attention.output_gate").empty());
}

TEST_CASE("attention sinks and a clamped SwiGLU are listed where there are some") {
  CausalLMSpec spec = toy_spec();
  spec.layers[0].attention.sinks = true;
  spec.layers[0].mlp.activation = ops::Activation::kClampedSwiglu;
  const Architecture lines = architecture(spec);
  CHECK(value(lines, "layers 0-0 attention.sinks") == "true");
  CHECK(value(lines, "layers 0-0 mlp.activation") == "clamped_swiglu");
  CHECK(value(lines, "layers 1-1 attention.sinks").empty());
}

TEST_CASE("names of weights and limits of lengths are no part of an architecture") {
  CHECK_FALSE(shows([](CausalLMSpec& s) { s.shape.max_position = 128; }));
  CHECK_FALSE(shows([](CausalLMSpec& s) { s.embedding_name = "tok"; }));
  CHECK_FALSE(shows([](CausalLMSpec& s) { s.layers[0].attention.prefix = "x"; }));
  CHECK_FALSE(shows([](CausalLMSpec& s) { s.rotary->factor = 7; }));  // of a scaling that is off
}
