#pragma once

#include <string>

#include "base/json.h"

namespace lorikeet::test {

/// A small Llama's config.json of transformers 4 with `changes` set, null members taken away.
inline Json llama_json(const std::string& changes = "{}") {
  Json json =
      Json::parse(R"({"model_type": "llama", "vocab_size": 128, "hidden_size": 64, "intermediate_size": 96,
      "num_hidden_layers": 2, "num_attention_heads": 8, "num_key_value_heads": 2, "max_position_embeddings": 512,
      "rms_norm_eps": 1e-5, "rope_theta": 500000.0})",
                  "base");
  const Json changed = Json::parse(changes, "changes");
  for (const Json::Member& change : changed.object()) {
    if (change.second.is_null()) {
      std::erase_if(json.object(), [&](const Json::Member& m) { return m.first == change.first; });
    } else {
      json.set(change.first, change.second);
    }
  }
  return json;
}

}  // namespace lorikeet::test
