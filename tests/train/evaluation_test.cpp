#include "train/evaluation.h"

#include <ATen/ATen.h>

#include "support/catch.h"
#include "support/toy_lora.h"

using namespace lorikeet;
using namespace lorikeet::test;

namespace {

// Examples of which only the last `labels` tokens count.
data::TokenDataset dataset(const std::vector<std::vector<std::int32_t>>& prompts, std::size_t labels) {
  data::TokenRows rows;
  for (const auto& prompt : prompts) {
    std::vector<std::int32_t> targets = prompt;
    for (std::size_t i = 0; i + labels < targets.size(); ++i) targets[i] = data::kNoLabel;
    rows.add(prompt, targets, 0, 1);
  }
  return data::TokenDataset(std::move(rows));
}

}  // namespace

TEST_CASE("an evaluation is the mean over label tokens, however they are grouped") {
  const ToyLora toy;
  const auto prompts = toy_prompts();
  const nn::Batch all = labelled(prompts);
  const double sum = toy.model.token_nll({.batch = all}).sum().item<double>();
  for (const std::int64_t micro_tokens : {1, 7, 1000}) {
    const auto result =
        train::evaluate(toy.model, dataset(prompts, 1000), {.micro_tokens = micro_tokens}, at::kCPU);
    CHECK(result.label_tokens == all.label_count);
    CHECK(result.loss() == Approx(sum / static_cast<double>(all.label_count)).epsilon(3e-6));
  }
}

TEST_CASE("an evaluation that is interrupted leaves out the batches to come, and says so") {
  const ToyLora toy;
  const auto prompts = toy_prompts();
  const auto evaluate = [&](int batches) {
    int asked = 0;
    return train::evaluate(toy.model, dataset(prompts, 1000), {.micro_tokens = 1}, at::kCPU, nullptr,
                           [&] { return asked++ == batches; });
  };
  const auto all = evaluate(static_cast<int>(prompts.size())), one = evaluate(1), none = evaluate(0);
  CHECK_FALSE(all.interrupted);
  CHECK((one.interrupted && one.label_tokens > 0 && one.label_tokens < all.label_tokens));
  CHECK((none.interrupted && none.label_tokens == 0));
}

TEST_CASE("an evaluation counts labels alone, and leaves gradients as they are") {
  const ToyLora toy;
  const auto prompts = toy_prompts();
  const at::Tensor before = toy.adapters.store().gradients().clone();
  const auto result = train::evaluate(toy.model, dataset(prompts, 1), {.micro_tokens = 8}, at::kCPU);
  std::int64_t longer_than_one = 0;
  for (const auto& prompt : prompts) longer_than_one += prompt.size() > 1 ? 1 : 0;
  CHECK(result.label_tokens == longer_than_one);
  CHECK(at::equal(toy.adapters.store().gradients(), before));
  CHECK(train::evaluate(toy.model, dataset(prompts, 0), {}, at::kCPU).loss() == 0.0);
}
