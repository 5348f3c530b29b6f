#include "train/step_runner.h"

#include <ATen/ATen.h>

#include <memory>
#include <optional>
#include <utility>

#include "support/catch.h"
#include "support/error_text.h"
#include "support/toy_lora.h"

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
    toy.adapters.initialize(peft::LoraInit::kKaiming, toy.model.store());
  }

  // Of the frozen weights.
  void zero(const std::string& name) {
    for (const auto& unit : toy.model.store().units()) {
      for (std::size_t i = 0; i < unit->segments().size(); ++i) {
        if (unit->segments()[i].name == name) unit->tensor(i).zero_();
      }
    }
  }
};

// Says that nothing in it is trainable, although it has adapters.
class CutGroup : public nn::LinearGroup {
 public:
  explicit CutGroup(std::unique_ptr<nn::LinearGroup> group) : group_(std::move(group)) {}
  at::Tensor forward(const at::Tensor& x, const nn::UnitLoan& weights, const nn::ForwardContext& context,
                     nn::LinearKept* kept, ops::LeftTerms* left, const at::Tensor& into) const override {
    return group_->forward(x, weights, context, kept, left, into);
  }
  std::vector<ops::LowRankTerm> left_terms(const nn::LinearKept& kept) const override {
    return group_->left_terms(kept);
  }
  ops::LoraLinearGradients backward(const at::Tensor& dy, const nn::UnitLoan& weights,
                                    const nn::ForwardContext& context, const nn::LinearKept& kept,
                                    bool input_gradient, ops::LeftTerms* left,
                                    const at::Tensor& into) const override {
    return group_->backward(dy, weights, context, kept, input_gradient, left, into);
  }
  void add_a_gradients(const ops::LoraLinearGradients& gradients, const at::Tensor& x,
                       const nn::ForwardContext& context) const override {
    group_->add_a_gradients(gradients, x, context);
  }
  std::optional<std::vector<ops::LoraProjection>> plain_updates(
      const nn::ForwardContext& context) const override {
    return group_->plain_updates(context);
  }
  const nn::GroupWeights& weights() const override { return group_->weights(); }
  bool learns() const override { return false; }

 private:
  std::unique_ptr<nn::LinearGroup> group_;
};

class CutFactory : public peft::LoraFactory {
 public:
  using peft::LoraFactory::LoraFactory;
  std::unique_ptr<nn::LinearGroup> linear(const nn::GroupSpec& spec, nn::WeightUnit& unit) override {
    auto group = peft::LoraFactory::linear(spec, unit);
    if (!spec.modules[0].name.ends_with("h.0.ffn.w1")) return group;
    return std::make_unique<CutGroup>(std::move(group));
  }
};

// Code at fault: backward ends before the lowest adapters, those of the first layer's w1.
struct CutRun {
  peft::LoraAdapters adapters;
  CutFactory factory{fp32_policy(), adapters};
  nn::CausalLM model{toy_spec(), factory};
  std::optional<AdamW> optimizer;
  StepRunner runner;

  explicit CutRun(const peft::LoraConfig& config)
      : adapters(config, fp32_policy(), /*seed=*/11), runner(model, adapters, allocated()) {}

 private:
  AdamW& allocated() {
    fill(model, toy_state(model, 7));
    adapters.store().allocate(at::kCPU);
    adapters.initialize(peft::LoraInit::kKaiming, model.store());
    return optimizer.emplace(adapters.store(), AdamWOptions{});
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

TEST_CASE("adapters that backward doesn't reach are an error that names them") {
  CutRun run({.rank = 3, .alpha = 6, .target_modules = {"w1", "w2"}});
  const nn::Batch batch = labelled(kPrompts);
  CHECK_THAT(error_text([&] { run.runner.run({batch}, batch.label_count, 0, 0.01); }, ErrorKind::kRunFailed),
             Contains("[train] step 1: expected backward to reach every adapter, it missed 1") &&
                 Contains("transformer.h.0.ffn.w1"));
}

TEST_CASE("a model that reaches all its adapters passes, and so does a step without labels") {
  CutRun run({.rank = 3, .alpha = 6, .target_modules = {"w2"}});
  const nn::Batch batch = labelled(kPrompts), none = labelled({{3}});
  CHECK_NOTHROW(run.runner.run({none}, 1, 0, 0.01));
  CHECK_NOTHROW(run.runner.run({batch}, batch.label_count, 1, 0.01));
}

TEST_CASE("gradients that are zero by the numbers don't stop a run") {
  const nn::Batch batch = labelled(kPrompts);
  SECTION("a frozen product of nothing but zeros lets nothing through") {
    Run run({.rank = 3, .alpha = 6, .target_modules = {"w1", "w2"}});
    run.zero("output.weight");
    const auto result = run.runner.run({batch}, batch.label_count, 0, 0.01);
    CHECK(result.grad_norm.item<double>() == 0);
  }
  SECTION("inputs that become zero after B has moved") {
    Run run({.rank = 3, .alpha = 6, .target_modules = {"w2"}});
    run.runner.run({batch}, batch.label_count, 0, 0.01);
    run.zero("transformer.h.0.ffn.w3.weight");
    CHECK_NOTHROW(run.runner.run({batch}, batch.label_count, 1, 0.01));
  }
  SECTION("a tiny alpha") {
    Run run({.rank = 3, .alpha = 1e-60});
    CHECK_NOTHROW(run.runner.run({batch}, batch.label_count, 0, 0.01));
  }
  SECTION("rows of two tokens, whose label's position attends to itself alone") {
    Run run({.rank = 3, .alpha = 6, .target_modules = {"query", "key"}});
    const nn::Batch pairs = labelled({{3, 7}, {5, 2}});
    const auto result = run.runner.run({pairs}, pairs.label_count, 0, 0.01);
    CHECK(result.grad_norm.item<double>() < 1e-6);  // rounding at most
  }
}
