#include "peft/weight_updates.h"

#include <ATen/ATen.h>

#include "models/toy_fused.h"
#include "support/catch.h"
#include "support/toy_lora.h"

using namespace lorikeet;
using namespace lorikeet::test;

namespace {

at::Tensor logits(const nn::CausalLM& model) {
  const nn::Batch batch = nn::pack_sequences(toy_prompts(), {}, at::kCPU);
  return model.logits({.batch = batch});
}

// Logits of the bare model over `state`, with the updates added to its weights.
at::Tensor merged(const nn::CausalLMSpec& spec, State state,
                  const std::map<std::string, peft::WeightUpdate>& updates) {
  for (const auto& [name, update] : updates) state.at(name) = update.applied_to(state.at(name));
  nn::FrozenFactory factory(fp32_policy());
  nn::CausalLM model(spec, factory);
  fill(model, state);
  return logits(model);
}

}  // namespace

TEST_CASE("a base with the updates added computes what base and adapter do, interleaved rows or not") {
  for (const nn::CausalLMSpec& spec : {toy_spec(), fused_toy_spec(), uninterleaved_toy_spec()}) {
    for (const bool dora : {false, true}) {
      CAPTURE(dora);
      const ToyLora toy({.rank = 3, .alpha = 6, .use_dora = dora}, fp32_policy(), {}, spec);
      const auto updates = peft::weight_updates(toy.adapters);
      CHECK(updates.size() == toy.adapters.modules().size());
      const at::Tensor expected = logits(toy.model);
      toy.adapters.store().all_values().zero_();  // updates don't look at the store any more
      CHECK(relative_error(merged(spec, toy.state, updates), expected) < 1e-5);
    }
  }
}

TEST_CASE("a base with the updates of the embedding and the head added computes what base and adapter do") {
  for (const bool dora : {false, true}) {
    const ToyLora toy({.rank = 3, .alpha = 6, .use_dora = dora, .target_modules = {".*"}});
    auto updates = peft::weight_updates(toy.adapters);
    CHECK(updates.at("transformer.wte.weight").magnitude_of_columns);
    CHECK_FALSE(updates.at("output.weight").magnitude_of_columns);
    CHECK(relative_error(merged(toy_spec(), toy.state, updates), logits(toy.model)) < 1e-5);
  }
}

TEST_CASE("updates whose rows were left in group order would be found") {
  const ToyLora toy({.rank = 3, .alpha = 6, .target_modules = {"qkv"}}, fp32_policy(), {}, fused_toy_spec());
  auto updates = peft::weight_updates(toy.adapters);
  for (const auto& module : toy.adapters.modules()) {
    const peft::AdapterStore& store = toy.adapters.store();
    updates.at(module.name + ".weight").b = store.value(module.b);
  }
  CHECK(relative_error(merged(fused_toy_spec(), toy.state, updates), logits(toy.model)) > 0.1);
}

TEST_CASE("an update's rows are the checkpoint's") {
  const ToyLora toy({.rank = 1, .alpha = 3, .target_modules = {"h.0.ffn.w13"}}, fp32_policy(), {},
                    fused_toy_spec());
  const auto& module = toy.adapters.modules().at(0);
  toy.adapters.store().value(module.a).fill_(1);
  toy.adapters.store().value(module.b).copy_(at::arange(40).unsqueeze(1));  // gate 0 to 19, up 20 to 39
  const at::Tensor update = peft::weight_updates(toy.adapters).at("transformer.h.0.ffn.w13.weight").delta();
  CHECK(update.sizes() == at::IntArrayRef({40, 24}));
  for (std::int64_t i = 0; i < 20; ++i) {
    CHECK((update[2 * i] == 3 * i).all().item<bool>());
    CHECK((update[2 * i + 1] == 3 * (20 + i)).all().item<bool>());
  }
}
