// How often a pass calls libtorch's operators, views included: on a fast card a small model's step takes as
// long as the host needs for them.
#include "base/json.h"
#include "models/registry.h"
#include "support/catch.h"
#include "support/dry_pass.h"

using namespace lorikeet;

namespace {

nn::CausalLMSpec spec(const std::string& family, int layers) {
  const Json config = Json::parse(
      R"({"vocab_size": 64, "hidden_size": 64, "intermediate_size": 96, "num_attention_heads": 4, "head_dim": 16,
          "num_key_value_heads": 2, "max_position_embeddings": 4096, "rms_norm_eps": 1e-6, "rope_theta": 10000.0,
          "hidden_act": "silu", "tie_word_embeddings": false, "model_type": ")" +
          family + R"(", "num_hidden_layers": )" + std::to_string(layers) + "}",
      "config.json");
  return models::model_spec(JsonView(config, "config.json"));
}

}  // namespace

TEST_CASE("calls of libtorch's operators that a layer makes, forward and backward") {
  const std::pair<std::string, int> most[] = {{"llama", 220}, {"qwen3", 223}};
  for (const auto& [family, bound] : most) {
    // Behind the attention of the last layer some rows alone are computed: it calls more.
    const auto five = test::DryPass(spec(family, 5), 64).calls(),
               two = test::DryPass(spec(family, 2), 64).calls();
    double total = 0;
    std::string list;
    for (const auto& [name, count] : test::calls_of_layer(five, two, 3)) {
      total += count;
      list += "\n  " + name + ": " + std::to_string(count);
    }
    INFO(family << ": " << total << " calls a layer" << list);
    CHECK(total <= bound);
    CHECK(total > 100);  // of them products and results alone
  }
}
