// A model whose projections leave their low-rank terms to activations and norms, on the fake card, against
// one whose don't.
#include <ATen/ATen.h>
#include <ATen/CPUGeneratorImpl.h>

#include <string>
#include <utility>
#include <vector>

#include "card/micro_step_report.h"
#include "support/catch.h"
#include "support/reference_ops.h"
#include "support/toy_lora.h"
#include "train/micro_step.h"

using namespace lorikeet;
using namespace lorikeet::test;

namespace {

constexpr const char *kActivations = "gated_terms_cuda.cu", *kNorms = "norm_terms_cuda.cu",
                     *kRotary = "rotary_terms_cuda.cu";
constexpr int kTokens = 40, kLayers = 2;

class Model {
 public:
  Model(const std::string& family, const peft::LoraConfig& lora, const std::string& keys = {}, int labels = 5)
      : card_({.family = family,
               .layers = kLayers,
               .heads = 1,
               .key_value_heads = 1,
               .head_dim = 64,
               .tokens = kTokens,
               .keys = keys},
              lora),
        batch_(card::batch_on_card(kTokens, labels)) {
    batch_.sample_ids = at::zeros_like(batch_.position_ids);
    for (const auto& unit : card_.model.store().units()) {
      for (std::size_t i = 0; i < unit->segments().size(); ++i) fill(unit->tensor(i), 0.2);
    }
    fill(card_.adapters.store().all_values(), 0.2);
    card_.adapters.store().refresh_compute();
  }

  // All gradients, flat.
  at::Tensor gradients(const config::MemorySaving& saving) {
    card_.adapters.store().gradients().zero_();
    card::reset_report();
    train::run_micro_step(card_.model, batch_, {.step = 3, .saving = saving});
    CHECK(card::report().hazards.empty());
    return card_.adapters.store().gradients().cpu();
  }

  // Gives up the B of the modules so called.
  void zero_b(const std::string& name) {
    for (const auto& module : card_.adapters.modules()) {
      if (peft::last_part(module.name) == name) card_.adapters.store().value(module.b).zero_();
    }
    card_.adapters.store().refresh_compute();
  }

 private:
  void fill(const at::Tensor& values, double size) {
    auto generator = at::make_generator<at::CPUGeneratorImpl>(seed_++);
    values.copy_((at::randn(values.sizes(), generator) * size).to(values.scalar_type()));
  }

  std::uint64_t seed_ = 1;
  card::CardModel card_;
  nn::Batch batch_;
};

struct Variant {
  const char* name;
  std::string family;
  peft::LoraConfig lora;
  // Launches of activations with terms: a layer's, those of both layers. A backward that sums up the gradient
  // of down's A has two.
  int forward, backward;
  // Of norms with terms: those of the first layer's output and down projections, and of the last one's where
  // there are enough labels, behind whose rows' attention nothing else is computed; and when layers are
  // computed again.
  int norms, norms_again;
  int rotary;  // launches in both layers
  std::string keys = {};
  int labels = 5;
};

peft::LoraConfig of_ranks(std::int64_t rank, const peft::LoraConfig::Pattern<std::int64_t>& others) {
  return {.rank = rank, .alpha = 16, .rank_pattern = others};
}

peft::LoraConfig of_modules(std::vector<std::string> modules) {
  return {.rank = 8, .alpha = 16, .target_modules = std::move(modules)};
}

}  // namespace

TEST_CASE("a layer's low-rank terms are added once wherever they are left to, however memory is saved") {
  const Variant variants[] = {
      {"rank 8", "llama", {.rank = 8, .alpha = 16}, 1, 4, 2, 1, 2},
      {"rank 16", "llama", {.rank = 16, .alpha = 16}, 1, 4, 2, 1, 2},
      {"a rank of gate's own", "llama", of_ranks(16, {{"gate_proj", 8}}), 1, 4, 2, 1, 2},
      {"a rank that kernels don't take", "llama", of_ranks(16, {{"up_proj", 4}}), 0, 4, 2, 1, 2},
      {"a rank of keys that kernels don't take", "llama", of_ranks(16, {{"k_proj", 4}}), 1, 4, 2, 1, 0},
      {"down's term without others", "llama", of_ranks(4, {{"down_proj", 8}}), 0, 4, 1, 0, 0},
      {"up alone", "llama", of_modules({"up_proj"}), 1, 2, 0, 0, 0},
      // The first layer's activation has nothing trainable below it.
      {"down alone", "llama", of_modules({"down_proj"}), 0, 2, 1, 0, 0},
      {"queries and values", "llama", of_modules({"q_proj", "v_proj"}), 0, 0, 0, 0, 2},
      {"keys alone", "llama", of_modules({"k_proj"}), 0, 0, 0, 0, 2},
      {"one module for several", "phi3", {.rank = 8, .alpha = 16}, 1, 4, 2, 1, 2},
      {"frozen A", "llama", {.rank = 8, .alpha = 16, .freeze_a = true}, 1, 2, 2, 1, 2},
      {"dropout", "llama", {.rank = 8, .alpha = 16, .dropout = 0.25}, 1, 2, 2, 1, 2},
      {"DoRA", "llama", {.rank = 8, .alpha = 16, .use_dora = true}, 0, 4, 0, 0, 0},
      {"from the base", "llama", {.rank = 8, .alpha = 16, .starts_from_base = true}, 1, 2, 2, 1, 2},
      {"labels enough for the last norms", "llama", {.rank = 8, .alpha = 16}, 1, 4, 4, 2, 2, "", 35},
      {"a layer without rotary",
       "smollm3",
       {.rank = 8, .alpha = 16},
       1,
       4,
       2,
       1,
       1,
       "\"no_rope_layers\": [1, 0], "},
      // What isn't added to the stream as it is can't leave its terms to the norm behind.
      {"a residual multiplier",
       "granite",
       {.rank = 8, .alpha = 16},
       1,
       4,
       0,
       0,
       2,
       R"("embedding_multiplier": 2.0, "attention_multiplier": 0.2, "residual_multiplier": 0.5,
          "logits_scaling": 2.0, )"},
      // With scores so small that softmax is flat: a sharp one enlarges the roundings of bf16.
      {"norms behind and before",
       "gemma2",
       {.rank = 8, .alpha = 16},
       1,
       4,
       0,
       0,
       2,
       R"("query_pre_attn_scalar": 4096, "attn_logit_softcapping": null, "final_logit_softcapping": null,
          "hidden_activation": "gelu_pytorch_tanh", "sliding_window": 4096, )"},
      {"blocks beside each other",
       "falcon",
       {.rank = 8, .alpha = 16},
       0,
       0,
       0,
       0,
       2,
       R"("multi_query": true, "parallel_attn": true, "bias": false, "ffn_hidden_size": 96, )"},
      // Queries and keys are normed before they are rotated, and a block's output before it is added.
      {"other norms", "olmo2", {.rank = 8, .alpha = 16}, 1, 4, 0, 0, 0},
  };
  for (const Variant& variant : variants) {
    Model model(variant.family, variant.lora, variant.keys, variant.labels);
    at::Tensor first;
    for (const config::MemorySaving& saving : savings()) {
      const auto grade = saving.checkpointing;
      CAPTURE(variant.name, static_cast<int>(grade), saving.offload.activations);
      const at::Tensor got = model.gradients(saving);
      const int again = grade == config::ActivationCheckpointing::kFull ? 1 : 0;
      CHECK(card::report().kernels[kActivations] ==
            kLayers * (1 + again) * variant.forward + variant.backward);
      CHECK(card::report().kernels[kNorms] == variant.norms + again * variant.norms_again);
      CHECK(card::report().kernels[kRotary] == (1 + again) * variant.rotary);
      at::Tensor expected;
      {
        const ReferenceOps references;
        expected = model.gradients(saving);
        CHECK(card::report().kernels[kActivations] == 0);
        CHECK(card::report().kernels[kNorms] == 0);
        CHECK(card::report().kernels[kRotary] == 0);
      }
      // What is computed again has the same bits.
      if (!first.defined()) first = got;
      CHECK(at::equal(got, first));
      // bf16 rounds each step of both, differently.
      CHECK(relative_error(got, expected) < 0.03);
    }
  }
}

TEST_CASE("that gradients agree says that all of a layer's low-rank terms are there") {
  const peft::LoraConfig lora{.rank = 8, .alpha = 16};
  at::Tensor expected;
  {
    const ReferenceOps references;
    expected = Model("llama", lora).gradients({});
  }
  for (const char* module : {"q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"}) {
    CAPTURE(module);
    Model without("llama", lora);
    without.zero_b(module);
    // Twice what the comparison above allows.
    CHECK(relative_error(without.gradients({}), expected) > 0.06);
  }
}
