#include <ATen/ATen.h>

#include "support/catch.h"
#include "support/toy_lora.h"

using namespace lorikeet;
using namespace lorikeet::test;

namespace {

// Loss and gradients with checkpointing equal those without, to the bit.
void check_bitwise(const peft::LoraConfig& config, const nn::CausalLMSpec& spec = toy_spec()) {
  ToyLora toy(config, fp32_policy(), {}, spec);
  const nn::Batch batch = labelled(toy_prompts());
  const auto plain = toy.gradients({batch}, 0.25, 3);
  REQUIRE(plain.second.norm().item<double>() > 0);
  toy.checkpointing = true;
  const auto checkpointed = toy.gradients({batch}, 0.25, 3);
  CHECK(at::equal(plain.first, checkpointed.first));
  CHECK(at::equal(plain.second, checkpointed.second));
}

}  // namespace

TEST_CASE("activation checkpointing gives bitwise equal gradients") {
  check_bitwise({.rank = 3, .alpha = 6});
}

TEST_CASE("activation checkpointing runs dropout's masks again") {
  check_bitwise({.rank = 3, .alpha = 6, .dropout = 0.4});
}

TEST_CASE("activation checkpointing works where some or all layers have no adapter") {
  check_bitwise({.rank = 3, .alpha = 6, .target_modules = {"h.2.ffn.w2"}});
  check_bitwise({.rank = 3, .alpha = 6, .target_modules = {"h.0.attn.query"}});
  check_bitwise({.rank = 3, .alpha = 6, .target_modules = {"output"}});
}

TEST_CASE("activation checkpointing is the same bits through every form of a layer") {
  check_bitwise({.rank = 3, .alpha = 6}, toy_forms_spec());
  check_bitwise({.rank = 3, .alpha = 6, .dropout = 0.4}, toy_forms_spec());
  check_bitwise({.rank = 3, .alpha = 6, .target_modules = {"h.1.attn.query"}}, toy_forms_spec());
}
