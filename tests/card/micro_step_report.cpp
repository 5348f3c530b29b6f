#include "card/micro_step_report.h"

#include <ATen/ATen.h>

#include <vector>

#include "base/json.h"
#include "models/registry.h"
#include "support/catch.h"
#include "train/micro_step.h"

namespace lorikeet::card {
namespace {

const at::Device kCard("cuda:1");

std::string config_of(const MicroStepOf& what) {
  const auto number = [](const char* key, std::int64_t value) {
    return "\"" + std::string(key) + "\": " + std::to_string(value) + ", ";
  };
  return "{\"model_type\": \"" + what.family + "\", " + what.keys + number("vocab_size", 64) +
         number("hidden_size", what.hidden) + number("intermediate_size", what.intermediate) +
         number("num_attention_heads", what.heads) + number("num_key_value_heads", what.key_value_heads) +
         number("head_dim", what.head_dim) + number("num_hidden_layers", what.layers) +
         R"("max_position_embeddings": 4096, "rms_norm_eps": 1e-6, "rope_theta": 10000.0,
         "hidden_act": "silu", "tie_word_embeddings": false})";
}

nn::CausalLMSpec spec_of(const MicroStepOf& what) {
  const Json json = Json::parse(config_of(what), "config.json");
  return models::model_spec(JsonView(json, "config.json"));
}

}  // namespace

CardModel::CardModel(const MicroStepOf& what, const peft::LoraConfig& lora)
    : adapters(lora, precision::Policy(), /*seed=*/1),
      factory(precision::Policy(), adapters),
      model(spec_of(what), factory) {
  model.store().allocate(kCard);
  adapters.store().allocate(kCard);
}

nn::Batch batch_on_card(int tokens, int labels) {
  std::vector<std::vector<std::int32_t>> sequences(2);
  for (std::int32_t i = 0; i < tokens; ++i) sequences[i % 3 == 0 ? 0 : 1].push_back(i % 64);
  nn::Batch batch = nn::pack_sequences(sequences, {}, kCard);
  const auto ids = at::TensorOptions(at::kLong);
  batch.label_rows = at::arange(0, labels, ids).to(kCard);
  batch.labels = at::arange(1, labels + 1, ids).to(kCard);
  batch.label_count = labels;
  return batch;
}

Report micro_step_report(const MicroStepOf& what) {
  CardModel on_card(what, {.rank = what.rank, .alpha = 3.0 * static_cast<double>(what.rank)});
  nn::CausalLM& model = on_card.model;
  peft::LoraAdapters& adapters = on_card.adapters;
  for (const auto& unit : model.store().units()) {
    for (std::size_t i = 0; i < unit->segments().size(); ++i) unit->tensor(i).fill_(0.01);
  }
  adapters.store().all_values().fill_(0.01);
  adapters.store().refresh_compute();
  const nn::Batch batch = batch_on_card(what.tokens);
  train::run_micro_step(model, batch, {});  // what is made once
  reset_report();
  const at::Tensor loss = train::run_micro_step(model, batch, {});
  const Report counted = report();
  CHECK(counted.hazards.empty());
  CHECK(counted.waits.empty());
  CHECK(counted.uploads == 0);
  CHECK(loss.isfinite().item<bool>());
  return counted;
}

}  // namespace lorikeet::card
