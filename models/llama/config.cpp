#include "models/llama/config.h"

#include <string>

#include "base/error.h"
#include "base/strings.h"
#include "models/rope.h"

namespace lorikeet::models {
namespace {

// Far above any real model, yet a whole model of such sizes has fewer than 2^57 parameters: no product of
// them overflows 64 bits, whatever a damaged file says.
constexpr std::int64_t kMostLayers = 1024;
constexpr std::int64_t kLargestWidth = std::int64_t{1} << 22;
constexpr std::int64_t kLargestVocabulary = std::int64_t{1} << 24;
constexpr std::int64_t kMostPositions = std::int64_t{1} << 28;

std::int64_t positive(const JsonView& value, std::int64_t largest) {
  const std::int64_t n = value.as_int();
  if (n <= 0 || n > largest) {
    throw Error("[" + value.where() + "] expected an integer from 1 to " + std::to_string(largest) +
                ", got " + std::to_string(n));
  }
  return n;
}

}  // namespace

LlamaConfig read_llama_config(const JsonView& config) {
  LlamaConfig c{};
  c.vocab_size = positive(config.at("vocab_size"), kLargestVocabulary);
  c.hidden_size = positive(config.at("hidden_size"), kLargestWidth);
  c.intermediate_size = positive(config.at("intermediate_size"), kLargestWidth);
  c.layers = positive(config.at("num_hidden_layers"), kMostLayers);
  c.heads = positive(config.at("num_attention_heads"), kLargestWidth);
  const auto kv_heads = config.maybe("num_key_value_heads");
  c.kv_heads = kv_heads ? positive(*kv_heads, kLargestWidth) : c.heads;
  c.max_position = positive(config.at("max_position_embeddings"), kMostPositions);
  if (c.heads % c.kv_heads != 0) {
    throw Error("[" + config.where() + "] num_attention_heads " + std::to_string(c.heads) +
                " is no multiple of num_key_value_heads " + std::to_string(c.kv_heads));
  }
  if (config.has("head_dim")) {
    c.head_dim = positive(config.at("head_dim"), kLargestWidth);
  } else if (c.hidden_size % c.heads == 0) {
    c.head_dim = c.hidden_size / c.heads;
  } else {
    throw Error("[" + config.where() + "] hidden_size " + std::to_string(c.hidden_size) +
                " is no multiple of num_attention_heads " + std::to_string(c.heads) +
                ", and there is no head_dim");
  }
  if (c.head_dim % 2 != 0)
    throw Error("[" + config.where() + "] head_dim " + std::to_string(c.head_dim) + " is odd");
  if (c.heads * c.head_dim > kLargestWidth) {
    throw Error("[" + config.where() + "] num_attention_heads " + std::to_string(c.heads) +
                " times head_dim " + std::to_string(c.head_dim) + " is over " +
                std::to_string(kLargestWidth));
  }
  const JsonView eps = config.at("rms_norm_eps");
  c.rms_norm_eps = eps.as_number();
  if (!(c.rms_norm_eps > 0 && c.rms_norm_eps < 1))
    throw Error("[" + eps.where() + "] expected a number in (0, 1)");
  c.attention_bias = config.get_bool("attention_bias", false);
  c.mlp_bias = config.get_bool("mlp_bias", false);
  c.tie_word_embeddings = config.get_bool("tie_word_embeddings", false);
  const std::string activation = config.get_string("hidden_act", "silu");
  if (activation != "silu") {
    throw Error("[" + config.where() + ": hidden_act] expected 'silu' for a Llama model, got '" +
                escape_control(activation) + "'");
  }
  c.rotary = read_rope(config, c.head_dim);
  return c;
}

}  // namespace lorikeet::models
