#include "models/llama/config.h"

#include "models/config_reader.h"
#include "models/rope.h"

namespace lorikeet::models {

LlamaConfig read_llama_config(const JsonView& json) {
  ConfigReader config(json, "llama");
  LlamaConfig c{read_sizes(config)};
  c.rms_norm_eps = config.epsilon("rms_norm_eps");
  c.attention_bias = config.flag("attention_bias", false);
  c.mlp_bias = config.flag("mlp_bias", false);
  config.choice("hidden_act", "silu", {"silu"});
  c.rotary = read_rope(config, c.head_dim);
  config.finish();
  return c;
}

}  // namespace lorikeet::models
