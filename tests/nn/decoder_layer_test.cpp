#include "nn/decoder_layer.h"

#include "models/toy_family.h"
#include "support/catch.h"
#include "support/error_text.h"

using namespace lorikeet;
using namespace lorikeet::nn;
using Catch::Contains;
using test::error_text;

namespace {

std::string error_of(const DecoderLayerSpec& spec) {
  FrozenFactory factory(test::fp32_policy());
  WeightStore store;
  return error_text([&] { DecoderLayer(spec, factory, store); });
}

}  // namespace

TEST_CASE("a block needs a norm before or behind it") {
  DecoderLayerSpec spec = test::toy_spec().layers[1];
  CHECK(error_of(spec) == "no error");
  spec.mlp_norm.reset();
  CHECK(error_of(spec) == "no error");
  spec.post_mlp_norm.reset();
  CHECK(error_of(spec) == "[layer 1] expected a norm before or behind its MLP, got none");
  spec = test::toy_spec().layers[1];
  spec.attention_norm.reset();
  CHECK(error_of(spec) == "no error");
  spec.post_attention_norm.reset();
  CHECK(error_of(spec) == "[layer 1] expected a norm before or behind its attention, got none");
}

TEST_CASE("a parallel layer has one norm for both blocks, or two") {
  DecoderLayerSpec spec = test::toy_spec().layers[0];
  CHECK(error_of(spec) == "no error");
  spec.mlp_norm = test::toy_spec().layers[1].mlp_norm;
  CHECK(error_of(spec) == "no error");
  spec.mlp_norm.reset();
  spec.attention_norm.reset();
  CHECK_THAT(error_of(spec), Contains("[layer 0] expected a norm"));
}

TEST_CASE("norms of queries and keys are over a head or over all of them") {
  DecoderLayerSpec spec = test::toy_spec().layers[1];
  const auto with = [&](std::int64_t q, std::int64_t k) {
    spec.attention.qk_norm = QkNormSpec{{"q_norm", q, 1e-6}, {"k_norm", k, 1e-6}};
    return error_of(spec);
  };
  CHECK(with(8, 8) == "no error");
  CHECK(with(32, 16) == "no error");
  CHECK(with(24, 8) == "[q_norm] expected a norm over 8 or 32 values, got 24");
  CHECK(with(32, 32) == "[k_norm] expected a norm over 8 or 16 values, got 32");
}

TEST_CASE("keys of another layer are an earlier one's, beside queries alone") {
  DecoderLayerSpec spec = test::toy_gemma4_spec().layers[3];
  CHECK(error_of(spec) == "no error");
  const auto refused =
      Contains("[transformer.h.3.attn] expected queries alone beside the keys of an earlier layer");
  spec.attention.keys_of = 3;
  CHECK_THAT(error_of(spec), refused);
  spec.attention.keys_of = 0;
  spec.attention.lends_keys = true;
  CHECK_THAT(error_of(spec), refused);
  spec = test::toy_gemma4_spec().layers[1];
  spec.attention.fused_qkv = FusedModule{"qkv"};
  CHECK_THAT(error_of(spec), Contains("expected keys as values beside separate q and k, got fused ones"));
}

TEST_CASE("latent attention is refused beside what plain attention has, without its heads or a rotation") {
  const DecoderLayerSpec latent = test::toy_latent_spec().layers[0];
  CHECK(error_of(latent) == "no error");
  const auto with = [&](auto change) {
    DecoderLayerSpec spec = latent;
    change(spec);
    return error_of(spec);
  };
  const auto plain = Contains("[transformer.h.0.attn] expected nothing of plain attention");
  CHECK_THAT(with([](DecoderLayerSpec& l) { l.attention.sinks = true; }), plain);
  CHECK_THAT(with([](DecoderLayerSpec& l) { l.attention.output_gate = true; }), plain);
  CHECK_THAT(with([](DecoderLayerSpec& l) { l.attention.lends_keys = true; }), plain);
  CHECK_THAT(with([](DecoderLayerSpec& l) { l.attention.value_norm_eps = 1e-6; }), plain);
  CHECK_THAT(with([](DecoderLayerSpec& l) { l.attention.layout.head_dim = 8; }),
             Contains("[transformer.h.0.attn] expected the heads of its latent layout"));
  CHECK_THAT(with([](DecoderLayerSpec& l) { l.rotary = LayerRotary::kNone; }),
             Contains("[transformer.h.0.attn] expected the model's rotary table"));
}

TEST_CASE(
    "norms of an MLP and of experts beside it stand in place of the one before them, and ask for both") {
  DecoderLayerSpec spec = test::toy_gemma4_spec().layers[2];
  CHECK(error_of(spec) == "no error");
  spec.mlp_norm = spec.post_mlp_norm;
  CHECK_THAT(error_of(spec), Contains("[layer 2] expected no norm before a block whose branches have norms"));
  spec.mlp_norm.reset();
  spec.experts->shared->gate = "gate";
  CHECK(error_of(spec) ==
        "[transformer.h.2] expected norms of branches beside a shared expert without a gate");
  spec.experts->shared.reset();
  CHECK_THAT(error_of(spec), Contains("expected norms of branches beside a shared expert without a gate"));
}

TEST_CASE("a layer declares its tensors as one unit, in the order of use, under the family's names") {
  FrozenFactory factory(test::fp32_policy());
  WeightStore store;
  const DecoderLayer layer(test::toy_spec().layers[1], factory, store);
  REQUIRE(store.units().size() == 1);
  std::vector<std::string> names;
  for (const WeightSegment& segment : store.units()[0]->segments()) names.push_back(segment.name);
  const std::string h = "transformer.h.1.";
  CHECK(names == std::vector<std::string>{h + "ln_1.weight", h + "attn.query.weight", h + "attn.key.weight",
                                          h + "attn.value.weight", h + "attn.dense.weight",
                                          h + "attn.dense.bias", h + "ln_2.weight", h + "ln_3.weight",
                                          h + "ffn.w1.weight", h + "ffn.w3.weight", h + "ffn.w1.bias",
                                          h + "ffn.w3.bias", h + "ffn.w2.weight", h + "ffn.w2.bias",
                                          h + "ln_4.weight"});
}

TEST_CASE("the stream's value is the residual, what was added last, and the terms that this was left") {
  const at::Tensor residual = at::full({2, 3}, 1.0), delta = at::full({2, 3}, 10.0);
  const at::Tensor left = at::tensor({1.0, 2.0, 3.0, 4.0}).view({2, 2});
  const at::Tensor right = at::tensor({1.0, 0.0, 0.0, 1.0, 1.0, 1.0}).view({3, 2});
  CHECK(at::equal(nn::Hidden{residual, {}}.value(), residual));
  CHECK(at::equal(nn::Hidden{residual, delta}.value(), residual + delta));
  const at::Tensor expected = at::tensor({13.0, 15.0, 17.0, 17.0, 19.0, 25.0}).view({2, 3});
  CHECK(at::equal(nn::Hidden{residual, delta, {{left, right, 0, /*scale=*/2}}}.value(), expected));
}
