// How many kernels a layer launches, forward and backward: at batches of a few thousand tokens a small
// model's time on a fast card is that of its launches.
#include <ATen/ATen.h>

#include <map>
#include <string>
#include <utility>

#include "base/json.h"
#include "card/report.h"
#include "models/registry.h"
#include "nn/batch.h"
#include "peft/lora.h"
#include "support/catch.h"
#include "train/micro_step.h"

using namespace lorikeet;

namespace {

const at::Device kCard("cuda:1");

std::string config_of(const std::string& family, int layers) {
  return R"({"model_type": ")" + family + R"(", "vocab_size": 64, "hidden_size": 64,
    "intermediate_size": 96, "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 16,
    "max_position_embeddings": 256, "rms_norm_eps": 1e-6, "rope_theta": 10000.0, "num_hidden_layers": )" +
         std::to_string(layers) + R"(, "hidden_act": "silu", "tie_word_embeddings": false})";
}

nn::Batch batch_on_card() {
  std::vector<std::vector<std::int32_t>> sequences(2);
  for (std::int32_t i = 0; i < 24; ++i) sequences[i % 3 == 0 ? 0 : 1].push_back(i);
  nn::Batch batch = nn::pack_sequences(sequences, {}, kCard);
  const auto ids = at::TensorOptions(at::kLong);
  batch.label_rows = at::arange(0, 5, ids).to(kCard);
  batch.labels = at::arange(1, 6, ids).to(kCard);
  batch.label_count = 5;
  return batch;
}

// Of one micro-step.
std::map<std::string, std::int64_t> launches(const std::string& family, int layers) {
  const precision::Policy policy;
  peft::LoraAdapters adapters({.rank = 8, .alpha = 24}, policy, /*seed=*/1);
  peft::LoraFactory factory(policy, adapters);
  const Json json = Json::parse(config_of(family, layers), "config.json");
  nn::CausalLM model(models::model_spec(JsonView(json, "config.json")), factory);
  model.store().allocate(kCard);
  adapters.store().allocate(kCard);
  for (const auto& unit : model.store().units()) {
    for (std::size_t i = 0; i < unit->segments().size(); ++i) unit->tensor(i).fill_(0.01);
  }
  adapters.store().all_values().fill_(0.01);
  adapters.store().refresh_compute();
  const nn::Batch batch = batch_on_card();
  train::run_micro_step(model, batch, {});  // what is made once
  card::reset_report();
  const at::Tensor loss = train::run_micro_step(model, batch, {});
  const card::Report& report = card::report();
  CHECK(report.hazards.empty());
  CHECK(report.waits.empty());
  CHECK(report.uploads == 0);
  std::map<std::string, std::int64_t> counts = report.kernels;
  for (const auto& [name, count] : report.operators) {
    if (card::launches_kernel(name)) counts[name] += count;
  }
  CHECK(loss.isfinite().item<bool>());
  return counts;
}

}  // namespace

TEST_CASE("launches of a layer with adapters on all its projections, forward and backward") {
  // Qwen 3 norms queries and keys beside what was projected, and once more in backward.
  const std::pair<std::string, std::int64_t> most[] = {{"llama", 55}, {"qwen3", 56}};
  for (const auto& [family, bound] : most) {
    const auto two = launches(family, 2), five = launches(family, 5);
    std::int64_t total = 0;
    std::string list;
    for (const auto& [name, count] : five) {
      const auto before = two.find(name);
      const std::int64_t of_layers = count - (before == two.end() ? 0 : before->second);
      CHECK(of_layers % 3 == 0);
      total += of_layers / 3;
      if (of_layers != 0) list += "\n  " + name + ": " + std::to_string(of_layers / 3);
    }
    INFO(family << ": " << total << " launches a layer" << list);
    CHECK(total <= bound);
    CHECK(total > 40);  // there are as many products
  }
}
