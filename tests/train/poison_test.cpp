// Without autograd's version counters nobody notices a kept tensor that is overwritten or freed too early:
// here such memory is full of NaN.
#include <ATen/ATen.h>

#include "support/catch.h"
#include "support/poisoned_memory.h"
#include "support/toy_lora.h"

using namespace lorikeet;
using namespace lorikeet::test;

TEST_CASE("poisoned memory shows a tensor that is read before it is written, or after it is gone") {
  const PoisonedMemory poisoned;
  CHECK(at::empty({100}).isnan().all().item<bool>());
  CHECK(at::empty({7}, at::kBFloat16).isnan().all().item<bool>());
  at::Tensor kept = at::ones({100});
  const at::Tensor view = at::from_blob(kept.data_ptr(), {100});
  CHECK(view.sum().item<double>() == 100);
  kept.reset();
  CHECK(view.isnan().all().item<bool>());
}

TEST_CASE("no step reads what it hasn't written or has given back") {
  const std::vector<nn::Batch> batches{labelled(toy_prompts()), labelled({{4, 9, 2}}, 4)};
  const peft::LoraConfig configs[] = {{.rank = 3, .alpha = 6},
                                      {.rank = 3, .alpha = 6, .dropout = 0.3},
                                      {.rank = 3, .alpha = 6, .use_dora = true, .starts_from_base = true},
                                      {.rank = 2, .alpha = 6, .target_modules = {"h.1.attn.key", "output"}}};
  precision::Policy bf16 = fp32_policy();
  bf16.base_storage = bf16.compute = DType::kBF16;
  for (const auto& spec : every_toy_spec()) {
    for (const auto& config : configs) {
      for (const auto& policy : {fp32_policy(), bf16}) {
        for (const auto& saving : savings()) {
          ToyLora toy(config, policy, {}, spec);
          toy.saving = saving;
          const auto expected = toy.gradients(batches, 0.5, 2);
          const PoisonedMemory poisoned;
          const auto found = toy.gradients(batches, 0.5, 2);
          CHECK(at::equal(found.first, expected.first));
          CHECK(at::equal(found.second, expected.second));
          CHECK(found.second.isfinite().all().item<bool>());
        }
      }
    }
  }
}

TEST_CASE("a validation pass reads nothing stale either") {
  const nn::Batch batch = labelled(toy_prompts());
  for (const auto& spec : every_toy_spec()) {
    const ToyLora toy({.rank = 3, .alpha = 6}, fp32_policy(), {}, spec);
    const at::Tensor expected = toy.model.token_nll({.batch = batch});
    const PoisonedMemory poisoned;
    CHECK(at::equal(toy.model.token_nll({.batch = batch}), expected));
  }
}
