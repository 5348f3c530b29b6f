// What families with interleaved rotary make of a config.json that leaves something out, and what they
// refuse.
#include "models/golden_config.h"
#include "support/catch.h"

using namespace lorikeet;
using test::check_refused;
using test::spec_of;

namespace {

const std::string kOldGlm = "glm/partial/config-transformers-4.json";
const std::string kGlm = "glm/partial/config.json";
const std::string kCohere = "cohere/plain/config.json";
const std::string kCohere2 = "cohere2/windows/config.json";
const std::string kOldCohere2 = "cohere2/windows/config-transformers-4.json";
const std::string kErnie = "ernie4_5/biases/config.json";

}  // namespace

TEST_CASE("what GLM, Cohere and ERNIE leave out of a file is transformers' default") {
  const nn::CausalLMSpec glm =
      spec_of(kOldGlm, R"({"partial_rotary_factor": "absent", "attention_bias": "absent"})");
  CHECK(glm.rotary->rotary_dim == 4);
  CHECK(glm.layers[0].attention.qkv_bias);
  CHECK_FALSE(glm.layers[0].attention.output_bias);
  const nn::CausalLMSpec cohere = spec_of(
      kCohere, R"({"logit_scale": "absent", "layer_norm_eps": "absent", "tie_word_embeddings": "absent"})");
  CHECK(cohere.head.scale == 0.0625);
  CHECK(cohere.shape.tied_head);
  CHECK(cohere.final_norm.eps == 1e-5);
  const std::string no_base = R"({"rope_theta": "absent"})";  // rope_scaling is null
  CHECK(spec_of("cohere/plain/config-transformers-4.json", no_base).rotary->theta == 500000);
  CHECK(spec_of(kOldCohere2, no_base).rotary->theta == 10000);
  // Every fourth layer is without a window, and without rotary.
  const nn::CausalLMSpec cohere2 =
      spec_of(kOldCohere2, R"({"sliding_window_pattern": "absent", "num_hidden_layers": 4})");
  for (const std::size_t i : {0, 1, 2, 3}) {
    CHECK(cohere2.layers[i].attention.options.window == (i == 3 ? 0 : 8));
    CHECK(cohere2.layers[i].rotary == (i == 3 ? nn::LayerRotary::kNone : nn::LayerRotary::kGlobal));
  }
  CHECK(spec_of(kErnie, R"({"head_dim": "absent"})").shape.head_dim == 128);
  CHECK_FALSE(spec_of(kErnie, R"({"use_bias": "absent"})").layers[0].mlp.bias);
}

TEST_CASE("what GLM, Cohere and ERNIE have no meaning for is refused") {
  check_refused(
      {{kCohere, R"({"use_qk_norm": true})", "use_qk_norm] true is not supported"},
       {kCohere, R"({"sliding_window": 8})", "sliding_window] the family cohere has no such setting"},
       {kCohere2, R"({"sliding_window": null})", "sliding_window] is missing"},
       {kCohere2, R"({"use_qk_norm": true})", "use_qk_norm] the family cohere2 has no such setting"},
       {kGlm, R"({"sliding_window": 8})", "sliding_window] the family glm has no such setting"},
       {kOldGlm, R"({"partial_rotary_factor": null})", "partial_rotary_factor] is null"},
       {kErnie, R"({"attention_bias": true})", "attention_bias] the family ernie4_5 has no such setting"}});
}
