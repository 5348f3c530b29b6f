#include "models/toy_family.h"

#include <ATen/ATen.h>

#include "nn/batch.h"
#include "support/catch.h"
#include "support/toy_lora.h"

using namespace lorikeet;
using namespace lorikeet::test;

namespace {

State in_fp64(const State& state) {
  State wide;
  for (const auto& [name, tensor] : state) wide[name] = tensor.to(at::kDouble);
  return wide;
}

}  // namespace

TEST_CASE("a family that is not Llama-shaped computes what its formulas say") {
  nn::FrozenFactory factory(fp32_policy());
  nn::CausalLM model(toy_spec(), factory);
  const State state = toy_state(model, 7);
  fill(model, state);
  const auto prompts = toy_prompts();
  const nn::Batch batch = nn::pack_sequences(prompts, {}, at::kCPU);
  const at::Tensor logits = model.logits({.batch = batch});
  std::vector<at::Tensor> expected;
  for (const auto& prompt : prompts) expected.push_back(toy_logits(in_fp64(state), prompt));
  CHECK(relative_error(logits, at::cat(expected)) < 2e-6);

  const at::Tensor rows = at::tensor(std::vector<std::int64_t>{6, 7, 11});
  CHECK(at::allclose(model.logits({.batch = batch}, rows), logits.index_select(0, rows), 1e-6, 1e-6));
}

TEST_CASE("the other forms of a layer compute what their formulas say") {
  nn::FrozenFactory factory(fp32_policy());
  nn::CausalLM model(toy_forms_spec(), factory);
  const State state = toy_state(model, 7);
  fill(model, state);
  const auto prompts = toy_prompts();
  const at::Tensor logits = model.logits({.batch = nn::pack_sequences(prompts, {}, at::kCPU)});
  std::vector<at::Tensor> expected;
  for (const auto& prompt : prompts) expected.push_back(toy_forms_logits(in_fp64(state), prompt));
  CHECK(relative_error(logits, at::cat(expected)) < 2e-6);
}

TEST_CASE("Gemma 4's forms of a layer compute what their formulas say") {
  nn::FrozenFactory factory(fp32_policy());
  nn::CausalLM model(toy_gemma4_spec(), factory);
  const State state = toy_state(model, 7);
  fill(model, state);
  const auto prompts = toy_prompts();
  const at::Tensor logits = model.logits({.batch = nn::pack_sequences(prompts, {}, at::kCPU)});
  std::vector<at::Tensor> expected;
  for (const auto& prompt : prompts) expected.push_back(toy_gemma4_logits(in_fp64(state), prompt));
  CHECK(relative_error(logits, at::cat(expected)) < 2e-6);
}

TEST_CASE("LFM2's forms of a layer compute what their formulas say") {
  nn::FrozenFactory factory(fp32_policy());
  nn::CausalLM model(toy_short_conv_spec(), factory);
  const State state = toy_state(model, 7);
  fill(model, state);
  const auto prompts = toy_prompts();
  const at::Tensor logits = model.logits({.batch = nn::pack_sequences(prompts, {}, at::kCPU)});
  std::vector<at::Tensor> expected;
  for (const auto& prompt : prompts) expected.push_back(toy_short_conv_logits(in_fp64(state), prompt));
  CHECK(relative_error(logits, at::cat(expected)) < 2e-6);
}

TEST_CASE("latent attention computes what its formulas say") {
  nn::FrozenFactory factory(fp32_policy());
  nn::CausalLM model(toy_latent_spec(), factory);
  const State state = toy_state(model, 7);
  fill(model, state);
  const auto prompts = toy_prompts();
  const at::Tensor logits = model.logits({.batch = nn::pack_sequences(prompts, {}, at::kCPU)});
  std::vector<at::Tensor> expected;
  for (const auto& prompt : prompts) expected.push_back(toy_latent_logits(in_fp64(state), prompt));
  CHECK(relative_error(logits, at::cat(expected)) < 2e-6);
}

TEST_CASE("Mamba 2 layers, and experts beside a fused MLP, compute what their formulas say") {
  nn::FrozenFactory factory(fp32_policy());
  nn::CausalLM model(toy_mamba_spec(), factory);
  const State state = toy_state(model, 7);
  fill(model, state);
  const auto prompts = toy_prompts();
  const at::Tensor logits = model.logits({.batch = nn::pack_sequences(prompts, {}, at::kCPU)});
  std::vector<at::Tensor> expected;
  for (const auto& prompt : prompts) expected.push_back(toy_mamba_logits(in_fp64(state), prompt));
  CHECK(relative_error(logits, at::cat(expected)) < 2e-6);
}

TEST_CASE("every tensor of the toy families takes part in their logits") {
  for (const auto& spec : every_toy_spec()) {
    nn::FrozenFactory factory(fp32_policy());
    nn::CausalLM model(spec, factory);
    const State state = toy_state(model, 9);  // by which each expert has tokens
    const nn::Batch batch = nn::pack_sequences(toy_prompts(), {}, at::kCPU);
    fill(model, state);
    const at::Tensor logits = model.logits({.batch = batch});
    for (const auto& [name, tensor] : state) {
      CAPTURE(name);
      State changed = state;
      // Not by a factor: a norm behind the tensor would take that out again.
      changed[name] = tensor + 0.5 * at::roll(tensor, 1);
      fill(model, changed);
      // A bias on the keys alone shifts all scores of a query alike where there is no rotation; here there
      // is.
      CHECK(relative_error(model.logits({.batch = batch}), logits) > 1e-5);
    }
  }
}

TEST_CASE("adapters without values leave the model as it was") {
  ToyLora toy;
  toy.adapters.initialize(peft::LoraInit::kKaiming, toy.model.store());
  const nn::Batch batch = nn::pack_sequences(toy_prompts(), {}, at::kCPU);
  nn::FrozenFactory factory(fp32_policy());
  nn::CausalLM plain(toy_spec(), factory);
  fill(plain, toy.state);
  CHECK(relative_error(toy.model.logits({.batch = batch}), plain.logits({.batch = batch})) < 1e-6);
}

TEST_CASE("the loss of each label is what the logits give") {
  ToyLora toy;
  const nn::Batch batch = labelled(toy_prompts());
  const at::Tensor nll = toy.model.token_nll({.batch = batch});
  const at::Tensor logits = toy.model.logits({.batch = batch}, batch.label_rows);
  const at::Tensor expected = -at::log_softmax(logits, 1).gather(1, batch.labels.unsqueeze(1)).squeeze(1);
  CHECK(at::allclose(nll, expected, 1e-5, 1e-6));
}

TEST_CASE("an embedding's scale is rounded to the compute dtype where a family says so") {
  for (const bool rounded : {false, true}) {
    CAPTURE(rounded);
    nn::FrozenFactory factory({.base_storage = DType::kBF16, .compute = DType::kBF16});
    nn::CausalLMSpec spec = toy_spec();
    spec.embedding_scale = 4.9;  // 4.90625 in bf16
    spec.embedding_scale_rounded = rounded;
    nn::CausalLM model(spec, factory);
    const State state = toy_state(model, 7);
    fill(model, state);
    const nn::Batch batch = nn::pack_sequences(toy_prompts(), {}, at::kCPU);
    const at::Tensor table = state.at(spec.embedding_name + ".weight").to(at::kBFloat16).to(at::kFloat);
    const at::Tensor embedded = table.index_select(0, batch.tokens);
    const auto is = [&](double scale) {
      return at::equal(model.embed({.batch = batch}).value(), (embedded * scale).to(at::kBFloat16));
    };
    CHECK(is(4.90625) == rounded);
    CHECK(is(4.9) != rounded);
  }
}
