#include "peft/lora_config.h"

#include "support/catch.h"

using namespace lorikeet::peft;

TEST_CASE("the last part of a module's name is what people name as a target") {
  CHECK(last_part("model.layers.3.mlp.up_proj") == "up_proj");
  CHECK(last_part("up_proj") == "up_proj");
  CHECK(last_part("").empty());
}

TEST_CASE("what no module can be called is a regular expression") {
  CHECK(is_pattern({".*q_proj"}));
  CHECK(is_pattern({"(q|v)_proj"}));
  CHECK_FALSE(is_pattern({"model.layers.0.q_proj"}));
  CHECK_FALSE(is_pattern({"all-linear"}));
  CHECK_FALSE(is_pattern({}));
}
