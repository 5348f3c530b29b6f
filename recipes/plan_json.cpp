#include "recipes/plan_json.h"

#include <utility>

namespace lorikeet::recipes {
namespace {

template <typename T>
Json or_null(const std::optional<T>& value) {
  return value ? Json(*value) : Json();
}

Json texts(const std::vector<std::string>& from) { return Json::Array(from.begin(), from.end()); }

Json device_json(const PlannedDevice& device) {
  const plan::Machine& machine = device.machine;
  Json json;
  json.set("name", machine.device)
      .set("memory_bytes", machine.memory_bytes)
      .set("flops_per_second", machine.flops_per_second)
      .set("memory_bytes_per_second",
           machine.memory_bytes_per_second > 0 ? Json(machine.memory_bytes_per_second) : Json())
      .set("link_bytes_per_second", machine.link(2).bytes_per_second)
      .set("price_per_hour", or_null(machine.price_per_hour))
      .set("sources", texts(device.sources));
  return json;
}

Json data_json(const DataFacts& data) {
  Json lengths{Json::Object{}};
  for (const auto& [percent, tokens] : data.percentiles) lengths.set(std::to_string(percent), tokens);
  Json json;
  json.set("assumed", data.assumed.empty() ? Json() : Json(data.assumed))
      .set("examples", data.examples)
      .set("tokens", data.tokens)
      .set("label_tokens", data.label_tokens)
      .set("longest", data.longest)
      .set("length_percentiles", std::move(lengths))
      .set("steps", data.steps)
      .set("tokens_per_step", data.tokens_per_step);
  return json;
}

Json option_json(const plan::Option& option) {
  const auto memory = option.memory.rows();
  Json json;
  json.set("devices", option.choice.devices)
      .set("strategy", option.choice.strategy())
      .set("shard_degree", option.choice.degree)
      .set("activation_checkpointing", std::string(name_of(option.choice.saving.checkpointing)))
      .set("offload", std::string(name_of(option.choice.saving.offload)))
      .set("micro_tokens", option.choice.micro_tokens)
      .set("memory_bytes_by_part", Json::Object(memory.begin(), memory.end()))
      .set("activation_bytes_per_layer", option.memory.activations_per_layer)
      .set("memory_bytes", option.memory.total())
      .set("host_memory_bytes", option.memory.host_total())
      .set("available_bytes", option.available)
      .set("fits", option.fits())
      .set("turns", option.turns)
      .set("compute_seconds", option.time.compute)
      .set("gather_seconds", option.time.gather)
      .set("reduce_seconds", option.time.reduce)
      .set("offload_seconds", option.time.offload)
      .set("step_seconds", option.time.total())
      .set("tokens_per_second", option.tokens_per_second)
      .set("cost_per_million_tokens", or_null(option.cost_per_million));
  return json;
}

}  // namespace

Json plan_json(const RunPlan& plan) {
  Json::Array options, questions;
  for (const plan::Option& option : plan.options) options.push_back(option_json(option));
  for (const plan::Question& asked : plan.decision.questions) {
    Json json;
    json.set("question", asked.question).set("answer", asked.answer).set("because", asked.because);
    questions.push_back(std::move(json));
  }
  const auto option_or_null = [](const plan::Option* option) {
    return option != nullptr ? option_json(*option) : Json();
  };
  Json json;
  json.set("device", device_json(plan.device))
      .set("model", plan.model)
      .set("data", data_json(plan.data))
      .set("options", Json(std::move(options)))
      .set("questions", Json(std::move(questions)))
      .set("best_on_one", option_or_null(plan.decision.on_one))
      .set("best", option_or_null(plan.decision.best))
      .set("verdict", plan.decision.verdict)
      .set("command", texts(plan.command));
  return json;
}

}  // namespace lorikeet::recipes
