#include "peft/lora_config.h"

#include "support/catch.h"

using namespace lorikeet::peft;

TEST_CASE("the scale is alpha over rank, or over its root with rsLoRA") {
  CHECK(LoraConfig{.rank = 16, .alpha = 32}.scale() == 2);
  CHECK(LoraConfig{.rank = 16, .alpha = 32, .use_rslora = true}.scale() == 8);
}

TEST_CASE("a target matches a module's name or its end after a dot") {
  const LoraConfig config{.target_modules = {"q_proj", "layers.1.up_proj"}};
  CHECK(config.matches("model.layers.0.self_attn.q_proj", false));
  CHECK(config.matches("q_proj", false));
  CHECK(config.matches("model.layers.1.up_proj", false));
  CHECK_FALSE(config.matches("model.layers.0.up_proj", false));
  CHECK_FALSE(config.matches("model.layers.11.up_proj", false));
  CHECK_FALSE(config.matches("model.layers.0.self_attn.eq_proj", false));
  CHECK_FALSE(config.matches("model.layers.0.q_proj.inner", false));
}

TEST_CASE("all-linear matches everything but the head") {
  CHECK(LoraConfig{}.matches("anything", false));
  CHECK_FALSE(LoraConfig{}.matches("lm_head", true));
}

TEST_CASE("the last part of a module's name is what people name as a target") {
  CHECK(last_part("model.layers.3.mlp.up_proj") == "up_proj");
  CHECK(last_part("up_proj") == "up_proj");
  CHECK(last_part("").empty());
}
