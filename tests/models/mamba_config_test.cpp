// What Granite 4 H and Bamba read and refuse of a config.json.
#include "models/golden_config.h"
#include "nn/causal_lm.h"
#include "support/catch.h"

using namespace lorikeet;
using test::check_refused;
using test::spec_of;

namespace {

const std::string kHybrid = "granitemoehybrid/hybrid/config.json";
const std::string kOldHybrid = "granitemoehybrid/hybrid/config-transformers-4.json";
const std::string kExperts = "granitemoehybrid/experts/config.json";
const std::string kBamba = "bamba/hybrid/config.json";

// A letter a layer: m for Mamba 2, a for attention.
std::string mixers(const std::string& file, const std::string& changes) {
  std::string letters;
  for (const nn::DecoderLayerSpec& layer : spec_of(file, changes).layers) letters += layer.mamba2 ? 'm' : 'a';
  return letters;
}

nn::Mamba2Spec mamba(const std::string& changes) {
  return spec_of(kHybrid, changes).layers.at(0).mamba2.value();
}

}  // namespace

TEST_CASE("Granite 4 H has Mamba 2 layers in place of attention, with their own names and numbers") {
  const nn::CausalLMSpec spec = spec_of(kHybrid, "{}");
  const nn::DecoderLayerSpec &first = spec.layers.at(0), &attending = spec.layers.at(1);
  const nn::Mamba2Spec& mamba = first.mamba2.value();
  CHECK(mamba.input_module().name == "model.layers.0.mamba.in_proj");
  CHECK(mamba.input_module().out_features == 48 + 48 + 2 * 2 * 6 + 4);
  CHECK(mamba.output_module().name == "model.layers.0.mamba.out_proj");
  CHECK(mamba.inner_width() == 2 * spec.shape.hidden_size);
  CHECK(mamba.layout.head_dim == 12);
  CHECK(mamba.layout.groups == 2);
  CHECK(mamba.norm_groups == 2);
  CHECK(mamba.taps == 4);
  CHECK(mamba.convolution_bias);
  CHECK_FALSE(mamba.bias);
  CHECK_FALSE(first.attends());
  CHECK(first.residual_multiplier == 0.4);
  CHECK(attending.attends());
  CHECK(attending.rotary == nn::LayerRotary::kNone);
  CHECK_FALSE(spec.rotary.has_value());
  CHECK(spec.shape.state_space_elements == 2 * 48 * 6);
  CHECK(spec.shape.state_elements == 0);
}

TEST_CASE("which layers of Granite 4 H and Bamba attend is said by either version's names, or by indices") {
  CHECK(mixers(kHybrid, "{}") == "mam");
  CHECK(mixers(kOldHybrid, "{}") == "mam");
  CHECK(mixers(kHybrid, R"({"layer_types": ["attention", "mamba", "full_attention"]})") == "ama");
  CHECK(mixers(kBamba, "{}") == "mam");
  CHECK(mixers(kBamba, R"({"attn_layer_indices": [0, 2]})") == "ama");
  CHECK(mixers(kBamba, R"({"attn_layer_indices": null})") == "mmm");
  check_refused({{kHybrid, R"({"layer_types": "absent"})", "layer_types] is missing"},
                 {kHybrid, R"({"layer_types": ["mamba", "conv", "mamba"]})", "got 'conv'"},
                 {kHybrid, R"({"layer_types": ["mamba"]})", "layer_types] expected one for each"},
                 {kBamba, R"({"attn_layer_indices": [3]})", "attn_layer_indices] expected layers below 3"},
                 {kBamba, R"({"attn_layer_indices": [-1]})", "attn_layer_indices] expected layers below 3"}});
}

TEST_CASE(
    "what a Mamba 2 layer's file leaves out is as transformers has it, and what doesn't fit is refused") {
  const nn::Mamba2Spec absent =
      mamba(R"({"mamba_d_head": "auto", "mamba_n_groups": "absent", "mamba_d_state": "absent",
                "mamba_d_conv": "absent", "mamba_expand": "absent", "mamba_conv_bias": "absent",
                "mamba_proj_bias": "absent", "mamba_chunk_size": "absent", "time_step_limit": null})");
  CHECK(absent.layout.head_dim == 12);
  CHECK(absent.layout.groups == 1);
  CHECK(absent.layout.state_dim == 256);
  CHECK(absent.taps == 4);
  CHECK(absent.convolution_bias);
  CHECK_FALSE(absent.bias);
  CHECK(mamba(R"({"mamba_expand": 3, "mamba_d_head": 18})").inner_width() == 72);
  check_refused({{kHybrid, R"({"mamba_d_head": 11})", "mamba_d_head] expected 12"},
                 {kHybrid, R"({"mamba_d_head": "wide"})", "mamba_d_head] expected 'auto'"},
                 {kHybrid, R"({"mamba_n_heads": 5})", "mamba_n_heads 5 doesn't divide"},
                 {kHybrid, R"({"mamba_n_groups": 3})", "no multiple of mamba_n_groups 3"},
                 {kHybrid, R"({"mamba_d_state": 4194304})", "make a projection over"},
                 {kHybrid, R"({"mamba_d_conv": 9})", "mamba_d_conv] expected an integer from 1 to 8"},
                 {kHybrid, R"({"time_step_limit": [0.0, 1.0]})", "time_step_limit] expected null or"},
                 {kHybrid, R"({"time_step_limit": [0.001, {"__float__": "Infinity"}]})", "time_step_limit"},
                 {kHybrid, R"({"time_step_limit": [0.0]})", "time_step_limit"}});
}

TEST_CASE("Granite 4 H has experts beside the MLP that every token passes") {
  const nn::CausalLMSpec spec = spec_of(kExperts, "{}");
  const nn::ExpertsSpec& experts = spec.layers.at(1).experts.value();
  CHECK(experts.count == 5);
  CHECK(experts.router.per_token == 2);
  CHECK(experts.router.normalized);
  CHECK(experts.intermediate_size == 24);
  CHECK(experts.router_module().name == "model.layers.1.block_sparse_moe.router.layer");
  CHECK(experts.down_module(3).name == "model.layers.1.block_sparse_moe.experts.3.down_proj");
  CHECK(experts.gate_up_group(0).slice.value().parameter ==
        "model.layers.1.block_sparse_moe.experts.gate_up_proj");
  const nn::MlpSpec shared = experts.shared_mlp();
  CHECK(shared.gate_up_modules().at(0).name == "model.layers.1.shared_mlp.input_linear");
  CHECK(shared.down_module().name == "model.layers.1.shared_mlp.output_linear");
  CHECK(shared.intermediate_size == 40);
  CHECK(spec.shape.intermediate_size == 2 * 24 + 40);
  CHECK(spec.layers.at(1).rotary == nn::LayerRotary::kGlobal);
  CHECK(spec_of(kExperts, R"({"num_local_experts": "absent"})").layers[0].experts->count == 8);
  check_refused({{kExperts, R"({"num_local_experts": null})", "num_local_experts] expected a number"},
                 {kExperts, R"({"num_experts_per_tok": 6})", "num_experts_per_tok] expected at most"},
                 {kExperts, R"({"output_router_logits": true})", "output_router_logits] true"}});
}

TEST_CASE("Bamba has its own names, and half of each head rotated") {
  const nn::CausalLMSpec spec = spec_of(kBamba, "{}");
  CHECK(spec.final_norm.name == "model.final_layernorm");
  CHECK(spec.rotary.value().rotary_dim == spec.shape.head_dim / 2);
  const nn::DecoderLayerSpec &first = spec.layers.at(0), &attending = spec.layers.at(1);
  CHECK(first.mlp_norm.value().name == "model.layers.0.pre_ff_layernorm");
  CHECK(first.mlp.down_module().name == "model.layers.0.feed_forward.down_proj");
  CHECK(first.mlp.bias);
  CHECK(first.mamba2.value().input_module().name == "model.layers.0.mamba.in_proj");
  CHECK(attending.attention.qkv_bias);
  CHECK(attending.attention.output_bias);
  const std::string rope = R"({"rope_parameters": {"rope_type": "default", "rope_theta": 10000.0)";
  CHECK(spec_of(kBamba, rope + "}}").rotary->rotary_dim == spec.shape.head_dim / 2);
  check_refused(
      {{kBamba, rope + R"(, "partial_rotary_factor": 1.0}})", "partial_rotary_factor] expected 0.5"},
       {kBamba, R"({"z_loss_coefficient": 0.1})", "z_loss_coefficient] expected 0"},
       {kBamba, R"({"hidden_act": "relu"})", "hidden_act] expected"},
       {kBamba, R"({"mamba_n_heads": 5})", "mamba_n_heads 5 doesn't divide"}});
}
