#include "train/step_runner.h"

#include <ATen/ATen.h>

#include "models/toy_lora.h"
#include "support/catch.h"
#include "support/error_text.h"

using namespace lorikeet;
using namespace lorikeet::train;
using namespace lorikeet::test;
using Catch::Contains;

namespace {

struct Run {
  ToyLora toy;
  AdamW optimizer{toy.adapters.store(), {}};
  StepRunner runner{toy.model, toy.adapters, optimizer};

  explicit Run(const peft::LoraConfig& config = {.rank = 3, .alpha = 6}) : toy(config) {
    toy.adapters.initialize(peft::LoraInit::kKaiming);
  }
};

const auto kPrompts = toy_prompts();

}  // namespace

TEST_CASE("a step's loss is summed over its labels and its gradient divided once by their count") {
  Run together, apart;
  const nn::Batch all = labelled(kPrompts);
  const std::vector<nn::Batch> pieces{labelled({kPrompts[0]}, 0), labelled({kPrompts[1]}, 1),  // no label
                                      labelled({kPrompts[2], kPrompts[3]}, 2)};
  for (std::uint64_t step = 0; step < 3; ++step) {
    const auto a = together.runner.run({all}, all.label_count, step, 0.01);
    const auto b = apart.runner.run(pieces, all.label_count, step, 0.01);
    CHECK(b.loss_sum.item<double>() == Approx(a.loss_sum.item<double>()).epsilon(3e-6));
    CHECK(b.grad_norm.item<double>() == Approx(a.grad_norm.item<double>()).epsilon(1e-4));
  }
}

TEST_CASE("the gradient norm is that of the mean loss") {
  Run run;
  const nn::Batch batch = labelled(kPrompts);
  const at::Tensor expected =
      run.toy.gradients({batch}, 1.0 / static_cast<double>(batch.label_count)).second.norm();
  run.toy.adapters.store().gradients().zero_();
  const auto result = run.runner.run({batch}, batch.label_count, 0, 0.01);
  CHECK(result.grad_norm.item<double>() == Approx(expected.item<double>()).epsilon(1e-5));
}

TEST_CASE("training lowers the loss of a batch that it repeats") {
  Run run;
  const nn::Batch batch = labelled(kPrompts);
  const double first = run.runner.run({batch}, batch.label_count, 0, 0.02).loss_sum.item<double>();
  double last = first;
  for (std::uint64_t step = 1; step < 60; ++step) {
    last = run.runner.run({batch}, batch.label_count, step, 0.02).loss_sum.item<double>();
  }
  CHECK(last < 0.5 * first);
}

TEST_CASE("adapters that get no gradient are an error that names them") {
  Run run({.rank = 3, .alpha = 6, .target_modules = {"w1", "w2"}});
  // A frozen product of nothing but zeros keeps the adapters below it from learning.
  for (const auto& unit : run.toy.model.store().units()) {
    for (std::size_t i = 0; i < unit->segments().size(); ++i) {
      if (unit->segments()[i].name == "output.weight") unit->tensor(i).zero_();
    }
  }
  const nn::Batch batch = labelled(kPrompts);
  CHECK_THAT(error_text([&] { run.runner.run({batch}, batch.label_count, 0, 0.01); }, ErrorKind::kRunFailed),
             Contains("[train] step 1: expected a gradient in every adapter tensor, 6 have none") &&
                 Contains("transformer.h.0.ffn.w1.lora_B.weight"));
}

TEST_CASE("an A without a gradient once its B has moved is an error that names it") {
  Run run({.rank = 3, .alpha = 6, .target_modules = {"w2"}});
  const nn::Batch batch = labelled(kPrompts);
  run.runner.run({batch}, batch.label_count, 0, 0.01);
  // With zero inputs to w2 neither A nor B gets a gradient; B has been seen to get one before.
  for (const auto& unit : run.toy.model.store().units()) {
    for (std::size_t i = 0; i < unit->segments().size(); ++i) {
      if (unit->segments()[i].name == "transformer.h.0.ffn.w3.weight") unit->tensor(i).zero_();
    }
  }
  CHECK_THAT(error_text([&] { run.runner.run({batch}, batch.label_count, 1, 0.01); }, ErrorKind::kRunFailed),
             Contains("step 2") && Contains("1 have none: transformer.h.0.ffn.w2.lora_A.weight"));
}
