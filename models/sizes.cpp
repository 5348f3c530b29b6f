#include "models/sizes.h"

#include <string>

namespace lorikeet::models {

std::int64_t implied_head_dim(const ConfigReader& config, const DecoderSizes& sizes) {
  if (sizes.hidden_size % sizes.heads == 0) return sizes.hidden_size / sizes.heads;
  config.contradiction("hidden_size " + std::to_string(sizes.hidden_size) +
                       " is no multiple of num_attention_heads " + std::to_string(sizes.heads) +
                       ", and there is no head_dim");
}

void require_consistent(const ConfigReader& config, const DecoderSizes& sizes) {
  const auto named = [](const char* key, std::int64_t value) { return key + std::to_string(value); };
  if (sizes.heads % sizes.kv_heads != 0) {
    config.contradiction(named("num_attention_heads ", sizes.heads) +
                         named(" is no multiple of num_key_value_heads ", sizes.kv_heads));
  }
  if (sizes.head_dim % 2 != 0) config.contradiction(named("head_dim ", sizes.head_dim) + " is odd");
  if (sizes.heads * sizes.head_dim > kLargestWidth) {
    config.contradiction(named("num_attention_heads ", sizes.heads) +
                         named(" times head_dim ", sizes.head_dim) + named(" is over ", kLargestWidth));
  }
}

// transformers gives the id to torch.nn.Embedding as its padding_idx, which counts from the end below 0. An
// id without a row never occurs.
std::int64_t read_padding_id(const ConfigReader& config, std::int64_t vocab_size, std::int64_t absent) {
  constexpr const char* kKey = "pad_token_id";
  const JsonView& json = config.view();
  const bool given = json.has(kKey);
  if (!given && json.json().find(kKey) != nullptr) return -1;  // null
  std::int64_t id = given ? json.at(kKey).as_int() : absent;
  if (given && id < 0) id += vocab_size;
  return id >= 0 && id < vocab_size ? id : -1;
}

DecoderSizes read_sizes(ConfigReader& config, HeadDim head_dim, const DecoderSizes& defaults) {
  const auto size = [&](const char* key, std::int64_t largest, std::int64_t absent) {
    return absent > 0 ? config.size_or(key, largest, absent) : config.size(key, largest);
  };
  DecoderSizes s;
  s.vocab_size = size("vocab_size", kLargestVocabulary, defaults.vocab_size);
  s.hidden_size = size("hidden_size", kLargestWidth, defaults.hidden_size);
  s.intermediate_size = size("intermediate_size", kLargestWidth, defaults.intermediate_size);
  s.layers = size("num_hidden_layers", kMostLayers, defaults.layers);
  s.heads = size("num_attention_heads", kLargestWidth, defaults.heads);
  s.kv_heads =
      size("num_key_value_heads", kLargestWidth, defaults.kv_heads > 0 ? defaults.kv_heads : s.heads);
  s.max_position = size("max_position_embeddings", kMostPositions, defaults.max_position);
  s.tied_head = config.flag("tie_word_embeddings", defaults.tied_head);
  s.padding_id = read_padding_id(config, s.vocab_size, defaults.padding_id);
  const bool given = head_dim == HeadDim::kRequired || config.has("head_dim");
  if (given) {
    s.head_dim = size("head_dim", kLargestWidth, defaults.head_dim);
  } else {
    s.head_dim = defaults.head_dim > 0 ? defaults.head_dim : implied_head_dim(config, s);
  }
  if (head_dim == HeadDim::kImplied && given && s.head_dim != implied_head_dim(config, s)) {
    config.fail("head_dim", "expected hidden_size by num_attention_heads, " +
                                std::to_string(implied_head_dim(config, s)) + ", as the family " +
                                config.family() + " has it, got " + std::to_string(s.head_dim));
  }
  require_consistent(config, s);
  return s;
}

}  // namespace lorikeet::models
