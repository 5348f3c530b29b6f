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

TEST_CASE("a layer in sequence needs a norm before its MLP") {
  DecoderLayerSpec spec = test::toy_spec().layers[1];
  CHECK(error_of(spec) == "no error");
  spec.mlp_norm.reset();
  CHECK_THAT(error_of(spec), Contains("[layer 1] expected an mlp_norm"));
}

TEST_CASE("a parallel layer has one norm for both halves") {
  DecoderLayerSpec spec = test::toy_spec().layers[0];
  CHECK(error_of(spec) == "no error");
  spec.mlp_norm = spec.attention_norm;
  CHECK_THAT(error_of(spec), Contains("[layer 0] expected no mlp_norm in parallel form"));
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
