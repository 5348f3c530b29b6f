// What LFM2 reads and refuses of a config.json.
#include "models/golden_config.h"
#include "nn/causal_lm.h"
#include "support/catch.h"

using namespace lorikeet;
using test::check_refused;
using test::spec_of;

namespace {

const std::string kTied = "lfm2/tied/config.json";

std::int64_t width(const std::string& changes) { return spec_of(kTied, changes).shape.intermediate_size; }

// A letter a layer: c for a convolution, a for attention.
std::string mixers(const std::string& changes) {
  std::string letters;
  for (const nn::DecoderLayerSpec& layer : spec_of(kTied, changes).layers)
    letters += layer.short_conv ? 'c' : 'a';
  return letters;
}

}  // namespace

TEST_CASE("LFM2 has its own names, convolutions and norms over each head of q and k") {
  const nn::CausalLMSpec spec = spec_of(kTied, "{}");
  CHECK(spec.final_norm.name == "model.embedding_norm");
  CHECK(spec.shape.tied_head);
  const nn::DecoderLayerSpec &convolution = spec.layers.at(0), &attending = spec.layers.at(1);
  CHECK(convolution.short_conv.value().input_module().name == "model.layers.0.conv.in_proj");
  CHECK(convolution.short_conv.value().input_module().out_features == 3 * spec.shape.hidden_size);
  CHECK(convolution.short_conv.value().output_module().name == "model.layers.0.conv.out_proj");
  CHECK(convolution.short_conv.value().taps == 3);
  CHECK_FALSE(convolution.attends());
  CHECK(attending.attends());
  CHECK(attending.attention.output_module().name == "model.layers.1.self_attn.out_proj");
  CHECK(attending.attention.qk_norm.value().q.name == "model.layers.1.self_attn.q_layernorm");
  CHECK(attending.attention.qk_norm.value().k.size == spec.shape.head_dim);
  CHECK(attending.attention_norm.value().name == "model.layers.1.operator_norm");
  CHECK(attending.mlp_norm.value().name == "model.layers.1.ffn_norm");
  CHECK(attending.mlp.down_module().name == "model.layers.1.feed_forward.w2");
}

TEST_CASE("which layers of LFM2 attend is said by their types, by indices, or all do") {
  CHECK(mixers("{}") == "cac");
  CHECK(mixers(R"({"layer_types": null, "full_attn_idxs": [0, 2]})") == "aca");
  CHECK(mixers(R"({"layer_types": null, "full_attn_idxs": []})") == "ccc");
  CHECK(mixers(R"({"layer_types": null, "full_attn_idxs": null})") == "aaa");
}

TEST_CASE("the width of LFM2's MLP is the file's, or two thirds of it, multiplied and rounded up") {
  CHECK(width(R"({"block_auto_adjust_ff_dim": false, "intermediate_size": 37})") == 37);
  CHECK(width(R"({"block_auto_adjust_ff_dim": false, "intermediate_size": 37, "block_ff_dim": 40})") == 40);
  const std::string adjusted = R"({"block_auto_adjust_ff_dim": true, "intermediate_size": 101, )";
  CHECK(width(adjusted + R"("block_multiple_of": 8})") == 72);
  CHECK(width(adjusted + R"("block_multiple_of": 8, "block_ffn_dim_multiplier": 1.3})") == 88);
  CHECK(width(adjusted + R"("block_multiple_of": 8, "block_ffn_dim_multiplier": null})") == 67);
  CHECK(width(adjusted + R"("block_multiple_of": null})") == 256);
}

TEST_CASE("LFM2 refuses what changes its numbers and isn't read") {
  check_refused(
      {{kTied, R"({"layer_types": ["conv", "sliding_attention", "conv"]})",
        "expected conv or full_attention, got 'sliding_attention'"},
       {kTied, R"({"layer_types": ["conv"]})", "one for each of num_hidden_layers 3"},
       {kTied, R"({"layer_types": null, "full_attn_idxs": [3]})", "expected layers below 3, got 3"},
       {kTied, R"({"conv_bias": true})", "conv_bias"},
       {kTied, R"({"conv_L_cache": 9})", "conv_L_cache"},
       {kTied, R"({"hidden_act": "gelu"})", "hidden_act"},
       {kTied, R"({"sliding_window": 8})", "sliding_window"},
       {kTied, R"({"block_auto_adjust_ff_dim": true, "intermediate_size": 1})", "an MLP of width 0"}});
}
