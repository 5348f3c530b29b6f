// However a step saves memory, it computes the same bits.
#include <ATen/ATen.h>

#include "parallel/host_weights.h"
#include "support/catch.h"
#include "support/toy_lora.h"

using namespace lorikeet;
using namespace lorikeet::test;

namespace {

const std::vector<nn::Batch>& batches() {
  static const std::vector<nn::Batch> all{labelled(toy_prompts()), labelled({{4, 9, 2}}, 4)};
  return all;
}

void check_bitwise(const peft::LoraConfig& config, const nn::CausalLMSpec& spec = toy_spec()) {
  ToyLora toy(config, fp32_policy(), {}, spec);
  const auto plain = toy.gradients(batches(), 0.25, 3);
  REQUIRE(plain.second.norm().item<double>() > 0);
  for (const auto& saving : savings()) {
    CAPTURE(config::overrides({}, saving));
    toy.saving = saving;
    const auto found = toy.gradients(batches(), 0.25, 3);
    CHECK(at::equal(plain.first, found.first));
    CHECK(at::equal(plain.second, found.second));
  }
}

}  // namespace

TEST_CASE("recomputed and offloaded activations give bitwise equal gradients") {
  check_bitwise({.rank = 3, .alpha = 6});
}

TEST_CASE("recomputation runs dropout's masks again") {
  check_bitwise({.rank = 3, .alpha = 6, .dropout = 0.4});
}

TEST_CASE("recomputation scales by DoRA's magnitudes again") {
  check_bitwise({.rank = 3, .alpha = 6, .use_dora = true});
}

TEST_CASE("memory is saved where some or all layers have no adapter") {
  check_bitwise({.rank = 3, .alpha = 6, .target_modules = {"h.2.ffn.w2"}});
  check_bitwise({.rank = 3, .alpha = 6, .target_modules = {"h.0.attn.query"}});
  check_bitwise({.rank = 3, .alpha = 6, .target_modules = {"output"}});
}

TEST_CASE("memory is saved to the bit through every form of a layer") {
  check_bitwise({.rank = 3, .alpha = 6}, toy_forms_spec());
  check_bitwise({.rank = 3, .alpha = 6, .dropout = 0.4}, toy_forms_spec());
  check_bitwise({.rank = 3, .alpha = 6, .target_modules = {"h.1.attn.query"}}, toy_forms_spec());
  check_bitwise({.rank = 3, .alpha = 6, .dropout = 0.4}, toy_short_conv_spec());
  check_bitwise({.rank = 3, .alpha = 6, .dropout = 0.4}, toy_latent_spec());
  check_bitwise({.rank = 3, .alpha = 6, .dropout = 0.4}, toy_mamba_spec());
}

TEST_CASE("memory is saved to the bit where layers read each other's keys, and inputs, whatever is trained") {
  check_bitwise({.rank = 3, .alpha = 6}, toy_gemma4_spec());
  check_bitwise({.rank = 3, .alpha = 6, .dropout = 0.4}, toy_gemma4_spec());
  check_bitwise({.rank = 3, .alpha = 6, .use_dora = true}, toy_gemma4_spec());
  check_bitwise({.rank = 3, .alpha = 6, .dropout = 0.4, .target_modules = {".*"}}, toy_gemma4_spec());
  for (const char* module :
       {"to_inputs", "h.1.attn.key", "h.3.attn.query", "h.4.attn.query", "h.0.per_layer_input_gate",
        "h.2.ffn.w3", "h.2.experts.1.w3", "h.4.experts.0.w2"}) {
    CAPTURE(module);
    check_bitwise({.rank = 3, .alpha = 6, .target_modules = {module}}, toy_gemma4_spec());
  }
}

TEST_CASE("weights in the host's memory give the same bits, two layers of them on the device") {
  ToyLora resident;
  const auto expected = resident.gradients(batches(), 0.25, 3);
  ToyLora toy;
  fill(toy.model, toy.state, {}, /*on_host=*/true);
  parallel::HostWeights weights(at::kCPU, toy.model);
  for (const auto& saving : savings()) {
    toy.saving = saving;
    const auto found = toy.gradients(batches(), 0.25, 3);
    CHECK(at::equal(found.first, expected.first));
    CHECK(at::equal(found.second, expected.second));
  }
  weights.drain();
  CHECK(weights.alive() == 2);  // the first layer, and the embedding ahead of the next micro-batch
  CHECK(weights.peak_bytes() == parallel::fetch_cost(toy.model, 1).buffer_bytes);
  CHECK(weights.peak_bytes() < toy.model.store().bytes());
}

TEST_CASE("weights in the host's memory give the same bits where layers read each other's keys, and inputs") {
  const peft::LoraConfig config{.rank = 3, .alpha = 6};
  ToyLora resident(config, fp32_policy(), {}, toy_gemma4_spec());
  const auto expected = resident.gradients(batches(), 0.25, 3);
  ToyLora toy(config, fp32_policy(), {}, toy_gemma4_spec());
  fill(toy.model, toy.state, {}, /*on_host=*/true);
  const parallel::HostWeights weights(at::kCPU, toy.model);
  for (const auto& saving : savings()) {
    toy.saving = saving;
    const auto found = toy.gradients(batches(), 0.25, 3);
    CHECK(at::equal(found.first, expected.first));
    CHECK(at::equal(found.second, expected.second));
  }
}

TEST_CASE("weights in the host's memory that nobody brings are an error, not an access") {
  ToyLora toy;
  fill(toy.model, toy.state, {}, /*on_host=*/true);
  CHECK_THROWS_WITH(toy.gradients(batches()), Catch::Contains("nobody lends it"));
}
