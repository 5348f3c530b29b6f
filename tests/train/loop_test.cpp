#include "train/loop.h"

#include <ATen/ATen.h>

#include <functional>
#include <limits>
#include <memory>
#include <stdexcept>

#include "base/file.h"
#include "base/strings.h"
#include "support/captured_stderr.h"
#include "support/catch.h"
#include "support/error_text.h"
#include "support/paths.h"
#include "support/toy_lora.h"

using namespace lorikeet;
using namespace lorikeet::train;
using namespace lorikeet::test;
using Catch::Contains;

namespace {

// `prompts` as examples that are trained on as a whole.
data::TokenDataset dataset(const std::vector<std::vector<std::int32_t>>& prompts) {
  data::TokenRows rows;
  for (std::size_t i = 0; i < prompts.size(); ++i) {
    rows.add(prompts[i], prompts[i], static_cast<std::int64_t>(i), static_cast<std::int64_t>(10 + i));
  }
  return data::TokenDataset(std::move(rows));
}

// Sequences that can be learnt: every one repeats the same few tokens.
data::TokenDataset training_set() {
  return dataset({{1, 2, 3, 4, 5, 6}, {2, 3, 4, 5}, {3, 4, 5, 6, 7}, {1, 2, 3}, {4, 5, 6, 7, 8}, {5, 6, 7}});
}

struct Rig {
  explicit Rig(const precision::Policy& policy = fp32_policy()) : toy({.rank = 3, .alpha = 6}, policy) {
    toy.adapters.initialize(peft::LoraInit::kKaiming, toy.model.store());
  }

  TemporaryFolder folder;
  ToyLora toy;
  AdamW optimizer{toy.adapters.store(), {}};
  data::TokenDataset training = training_set();
  data::TokenDataset validation;
  data::Sampler sampler{training, {.examples_per_step = 2, .epochs = 4}};  // 3 steps an epoch
  CheckpointStore checkpoints{folder.path(), "base", std::nullopt};
  Progress progress{sampler.total_steps(), 1000};
  LoopOptions options{.schedule = {.kind = config::SchedulerName::kConstant, .lr = 0.02, .total_steps = 12},
                      .micro = {.micro_tokens = 8}};
  LoopHooks hooks;
  RunState state;

  LoopEnd run() {
    std::optional<MetricsWriter> metrics;
    metrics.emplace(folder / "metrics.jsonl", state.step, state.validation_pending);
    const LoopParts parts{.model = toy.model,
                          .adapters = toy.adapters,
                          .optimizer = optimizer,
                          .training = training,
                          .sampler = sampler,
                          .validation = validation.size() > 0 ? &validation : nullptr,
                          .device = at::kCPU,
                          .checkpoints = &checkpoints,
                          .metrics = &metrics,
                          .progress = &progress};
    return run_loop(parts, options, hooks, state);
  }

  std::vector<Json> lines() const {
    std::vector<Json> out;
    for (const std::string& line : split(read_file(folder / "metrics.jsonl"), '\n')) {
      if (!line.empty()) out.push_back(Json::parse(line, "metrics"));
    }
    return out;
  }
};

using Steps = std::vector<std::int64_t>;

}  // namespace

TEST_CASE("the loop runs every step of the sampler, writes a line for each and a checkpoint at the end") {
  Rig rig;
  CHECK(rig.run() == LoopEnd::kFinished);
  CHECK(rig.state.step == 12);
  CHECK(rig.checkpoints.steps() == Steps{12});
  const auto lines = rig.lines();
  REQUIRE(lines.size() == 12);
  for (std::size_t i = 0; i < lines.size(); ++i) {
    const JsonView line(lines[i], "line");
    CHECK(line.at("step").as_int() == static_cast<std::int64_t>(i + 1));
    CHECK(line.at("epoch").as_number() == Approx(static_cast<double>(i + 1) / 3));
    CHECK(line.at("examples").as_int() == 2);
    CHECK(line.at("label_tokens").as_int() == line.at("tokens").as_int() - 2);
    CHECK(line.at("memory_peak_bytes").as_int() > 0);
  }
  CHECK(JsonView(lines[11], "line").at("loss").as_number() <
        0.9 * JsonView(lines[0], "line").at("loss").as_number());
}

TEST_CASE("checkpoints come every so many steps and epochs") {
  Rig steps;
  steps.options.save_every_steps = 5;
  steps.run();
  CHECK(steps.checkpoints.steps() == Steps{5, 10, 12});
  Rig epochs;
  epochs.options.save_every_epochs = 2;
  epochs.run();
  CHECK(epochs.checkpoints.steps() == Steps{6, 12});
}

TEST_CASE("a validation set is evaluated on time and at the end, and its best step is kept in the state") {
  Rig rig;
  rig.validation = dataset({{1, 2, 3, 4, 5}, {5, 6, 7, 8}});
  rig.options.validate_every_steps = 5;
  std::vector<std::int64_t> best;
  rig.hooks.new_best = [&](const RunState& state) { best.push_back(state.step); };
  CHECK(rig.run() == LoopEnd::kFinished);
  Steps evaluated;
  double lowest = std::numeric_limits<double>::infinity();
  for (const Json& line : rig.lines()) {
    const Json* loss = line.find("val_loss");
    if (loss == nullptr) continue;
    evaluated.push_back(line.find("step")->integer());
    lowest = std::min(lowest, JsonView(line, "line").at("val_loss").as_number());
  }
  CHECK(evaluated == Steps{5, 10, 12});
  REQUIRE(rig.state.best);
  CHECK(rig.state.best->val_loss == lowest);
  CHECK(best.back() == rig.state.best->step);
}

TEST_CASE("without a number of steps a validation comes at the end of each epoch") {
  Rig rig;
  rig.validation = dataset({{1, 2, 3, 4, 5}, {5, 6, 7, 8}});
  CHECK(rig.run() == LoopEnd::kFinished);
  Steps evaluated;
  for (const Json& line : rig.lines()) {
    if (line.find("val_loss") != nullptr) evaluated.push_back(line.find("step")->integer());
  }
  CHECK(evaluated == Steps{3, 6, 9, 12});
}

TEST_CASE("patience counts the validations at the ends of epochs too") {
  Rig rig;
  rig.validation = dataset({{8, 6, 4, 2}, {7, 5, 3, 1}});  // the opposite of what is learnt
  rig.options.patience = 1;
  CHECK(rig.run() == LoopEnd::kEarlyStop);
  CHECK(rig.state.step == 6);
}

TEST_CASE("an early stop that was killed before the run's end is one when it goes on, and is announced") {
  Rig rig;
  rig.validation = dataset({{8, 6, 4, 2}, {7, 5, 3, 1}});
  rig.options.validate_every_steps = 1;
  rig.options.patience = 3;
  CHECK(rig.run() == LoopEnd::kEarlyStop);
  const std::int64_t step = rig.state.step;
  const at::Tensor values = rig.toy.adapters.store().values().clone();

  rig.toy.randomize(99);
  rig.state = rig.checkpoints.load(step, rig.toy.adapters, rig.optimizer);
  const CapturedStderr captured;
  CHECK(rig.run() == LoopEnd::kEarlyStop);
  CHECK(rig.state.step == step);
  CHECK(at::equal(rig.toy.adapters.store().values(), values));
  CHECK_THAT(captured.text(),
             Contains("step " + std::to_string(step) + ": stopped early, 3 validations in a row") &&
                 Contains("at step " + std::to_string(step - 3)));
}

TEST_CASE("a validation loss that stops falling ends the run early, with a checkpoint") {
  Rig rig;
  rig.validation = dataset({{8, 6, 4, 2}, {7, 5, 3, 1}});  // the opposite of what is learnt
  rig.options.validate_every_steps = 1;
  rig.options.patience = 3;
  CHECK(rig.run() == LoopEnd::kEarlyStop);
  REQUIRE(rig.state.best);
  CHECK(rig.state.step == rig.state.best->step + 3);
  CHECK(rig.state.step < 12);
  CHECK(rig.checkpoints.steps() == Steps{rig.state.step});
}

TEST_CASE("an interrupt saves one checkpoint, and a second run goes on to the same end") {
  Rig whole;
  whole.run();
  Rig cut;
  cut.hooks.interrupted = [&] { return cut.state.step == 7; };
  CHECK(cut.run() == LoopEnd::kInterrupted);
  CHECK(cut.checkpoints.steps() == Steps{7});

  cut.hooks = {};
  cut.toy.randomize(99);
  cut.state = cut.checkpoints.load(7, cut.toy.adapters, cut.optimizer);
  CHECK(cut.run() == LoopEnd::kFinished);
  CHECK(at::equal(cut.toy.adapters.store().values(), whole.toy.adapters.store().values()));
  REQUIRE(cut.lines().size() == 12);
  for (std::size_t i = 0; i < 12; ++i) {
    CHECK(cut.lines()[i].find("loss")->dump() == whole.lines()[i].find("loss")->dump());
  }
}

TEST_CASE("a run that ended within a validation goes on with that validation, to the same end") {
  const auto rig = [] {
    auto made = std::make_unique<Rig>();
    made->validation = dataset({{1, 2, 3, 4, 5}, {5, 6, 7, 8}});  // behind steps 3, 6, 9, 12
    made->options.save_every_epochs = 2;
    return made;
  };
  const auto whole = rig();
  whole->run();
  struct End {
    const char* how;
    std::int64_t step;
    std::function<void(Rig&)> prepare;
  };
  const std::runtime_error killed("killed");
  const End ends[] = {
      {"interrupted where nothing else is saved", 3,
       [](Rig& cut) {
         cut.hooks.interrupted = [&cut] { return cut.state.step == 3 && cut.state.validation_pending; };
       }},
      {"interrupted where a checkpoint is due", 6,
       [](Rig& cut) {
         cut.hooks.interrupted = [&cut] { return cut.state.step == 6 && cut.state.validation_pending; };
       }},
      {"killed before its line is written", 6,
       [&](Rig& cut) {
         cut.hooks.interrupted = [&]() -> bool {
           if (cut.state.step == 6 && cut.state.validation_pending) throw killed;
           return false;
         };
       }},
      {"killed behind its line", 12,
       [&](Rig& cut) {
         cut.hooks.new_best = [&](const RunState& state) {
           if (state.step == 12) throw killed;
         };
       }},
  };
  for (const End& end : ends) {
    INFO(end.how);
    const auto cut = rig();
    end.prepare(*cut);
    if (std::string(end.how).starts_with("killed")) {
      CHECK_THROWS_AS(cut->run(), std::runtime_error);
    } else {
      CHECK(cut->run() == LoopEnd::kInterrupted);
    }
    REQUIRE(cut->checkpoints.steps().back() == end.step);
    cut->hooks = {};
    cut->toy.randomize(99);
    cut->state = cut->checkpoints.load(end.step, cut->toy.adapters, cut->optimizer);
    CHECK(cut->state.validation_pending);
    CHECK(cut->run() == LoopEnd::kFinished);
    CHECK(at::equal(cut->toy.adapters.store().values(), whole->toy.adapters.store().values()));
    CHECK(cut->state.best->step == whole->state.best->step);
    const auto lines = cut->lines(), expected = whole->lines();
    REQUIRE(lines.size() == expected.size());
    for (std::size_t i = 0; i < lines.size(); ++i) {
      for (const char* key : {"step", "loss", "val_loss"}) {
        const Json *own = lines[i].find(key), *other = expected[i].find(key);
        REQUIRE((own == nullptr) == (other == nullptr));
        if (own != nullptr) CHECK(own->dump() == other->dump());
      }
    }
  }
}

TEST_CASE("an interrupt before the first step leaves no checkpoint") {
  Rig rig;
  rig.hooks.interrupted = [] { return true; };
  CHECK(rig.run() == LoopEnd::kInterrupted);
  CHECK(rig.checkpoints.steps().empty());
}

namespace {

void spoil_head(Rig& rig) {
  for (const auto& unit : rig.toy.model.store().units()) {
    for (std::size_t i = 0; i < unit->segments().size(); ++i) {
      if (unit->segments()[i].name == "output.weight") {
        unit->tensor(i).fill_(std::numeric_limits<float>::quiet_NaN());
      }
    }
  }
}

}  // namespace

TEST_CASE(
    "a loss that is not finite stops the run, names the lines, and leaves a checkpoint of the step before") {
  Rig rig;
  rig.options.save_every_steps = 3;
  at::Tensor kept;
  rig.hooks.interrupted = [&] {
    if (rig.state.step != 4) return false;
    kept = rig.toy.adapters.store().values().clone();
    spoil_head(rig);
    return false;
  };
  std::vector<std::string> named;
  for (const std::size_t example : rig.sampler.step(4).examples)
    named.push_back(std::to_string(10 + example));
  CHECK_THAT(error_text([&] { rig.run(); }, ErrorKind::kRunFailed),
             Contains("[train] step 5: the loss is not finite") && Contains("lines " + join(named, ", ")) &&
                 Contains("the last checkpoint is that of step 4"));
  CHECK(rig.checkpoints.steps() == Steps{3, 4});
  CHECK(at::equal(rig.toy.adapters.store().values(), kept));
  CHECK(rig.lines().size() == 4);

  Rig other;
  CHECK(rig.checkpoints.load(4, other.toy.adapters, other.optimizer).step == 4);
  CHECK(at::equal(other.toy.adapters.store().values(), kept));
}

TEST_CASE("an adapter that was updated behind a step that is not finite is not saved as the step before") {
  Rig rig;
  rig.options.save_every_steps = 3;
  rig.hooks.interrupted = [&] {
    if (rig.state.step != 4) return false;
    rig.optimizer.updates().add_(1);  // as a step does that was launched ahead
    spoil_head(rig);
    return false;
  };
  CHECK_THAT(error_text([&] { rig.run(); }, ErrorKind::kRunFailed),
             Contains("step 5") && Contains("the last checkpoint is that of step 3"));
  CHECK(rig.checkpoints.steps() == Steps{3});
}

namespace {

precision::Policy fp16_policy() { return precision::resolve({.preset = config::PrecisionPreset::kFp16}); }

GradientScaler scaler_at(double scale) {
  const Json json = Json().set("scale", scale).set("good_steps", 0).set("skipped", 0);
  return GradientScaler::from_json(JsonView(json, "scaler"));
}

}  // namespace

TEST_CASE("a step whose scaled gradients overflow is skipped and counted, and the run goes on") {
  Rig rig(fp16_policy());
  rig.state.scaler = scaler_at(GradientScaler::kLargestScale);
  rig.options.save_every_steps = 1;
  const at::Tensor start = rig.toy.adapters.store().values().clone();
  CHECK(rig.run() == LoopEnd::kFinished);

  const auto lines = rig.lines();
  REQUIRE(lines.size() == 12);
  std::int64_t skipped = 0;
  double scale = GradientScaler::kLargestScale;
  for (const Json& json : lines) {
    const JsonView line(json, "line");
    CHECK(line.at("loss_scale").as_number() == scale);
    if (line.at("grad_norm").json().is_null()) {  // JSON has no infinity
      ++skipped;
      scale /= 2;
    }
    CHECK(line.at("skipped_steps").as_int() == skipped);
  }
  CHECK(skipped > 0);
  CHECK(skipped < 12);
  REQUIRE(rig.state.scaler);
  CHECK(rig.state.scaler->skipped() == skipped);
  CHECK(rig.optimizer.updates().item<double>() == static_cast<double>(12 - skipped));

  // The checkpoint of the first step, which was skipped, holds the start and the lower factor.
  Rig other(fp16_policy());
  const RunState saved = rig.checkpoints.load(1, other.toy.adapters, other.optimizer);
  REQUIRE(saved.scaler);
  CHECK(saved.scaler->scale() == GradientScaler::kLargestScale / 2);
  CHECK(saved.scaler->skipped() == 1);
  CHECK(at::equal(other.toy.adapters.store().values(), start));
}

TEST_CASE("a run with scaled gradients resumes to the same bits") {
  Rig whole(fp16_policy()), cut(fp16_policy());
  whole.state.scaler = cut.state.scaler = scaler_at(GradientScaler::kLargestScale);
  whole.run();
  cut.hooks.interrupted = [&] { return cut.state.step == 5; };
  CHECK(cut.run() == LoopEnd::kInterrupted);
  cut.hooks = {};
  cut.toy.randomize(1);
  cut.state = cut.checkpoints.load(5, cut.toy.adapters, cut.optimizer);
  cut.toy.adapters.store().refresh_compute();
  CHECK(cut.run() == LoopEnd::kFinished);
  CHECK(at::equal(cut.toy.adapters.store().values(), whole.toy.adapters.store().values()));
  CHECK(cut.state.scaler == whole.state.scaler);
}

TEST_CASE("gradients that overflow unscaled end the run, with what has more room") {
  Rig rig(fp16_policy());
  rig.state.scaler = scaler_at(1);
  // A finite loss of logits so large that their gradients leave fp16's range on the way down.
  for (const auto& unit : rig.toy.model.store().units()) {
    for (std::size_t i = 0; i < unit->segments().size(); ++i) {
      if (unit->segments()[i].name == "output.weight") unit->tensor(i).mul_(60000);
    }
  }
  CHECK_THAT(error_text([&] { rig.run(); }, ErrorKind::kRunFailed),
             Contains("is not finite") && Contains("precision.preset=bf16"));
}

TEST_CASE("a policy without scaling drops a scaler, and one with scaling begins with its own") {
  Rig plain;
  plain.state.scaler.emplace();
  plain.run();
  CHECK_FALSE(plain.state.scaler);
  CHECK(plain.lines()[0].find("loss_scale") == nullptr);
  Rig scaled(fp16_policy());
  scaled.run();
  REQUIRE(scaled.state.scaler);
  CHECK(scaled.state.scaler->scale() == GradientScaler::kFirstScale);
}
