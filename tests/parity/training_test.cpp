// Ten AdamW steps against PEFT's from the same adapter (tests/parity/make_model_goldens.py), and proof that
// the tolerances would see a wrong run.
#include <ATen/ATen.h>

#include <algorithm>
#include <array>
#include <cmath>

#include "base/file.h"
#include "data/micro_batch.h"
#include "ops/matmul/matmul.h"
#include "parity/golden_model.h"
#include "support/catch.h"
#include "train/adamw.h"
#include "train/device_batch.h"
#include "train/schedule.h"
#include "train/step_runner.h"

using namespace lorikeet;
using namespace lorikeet::test;
using config::PrecisionPreset;

namespace {

constexpr double kLossLimit = 2e-5, kNormLimit = 2e-5, kUpdateLimit = 1e-4;
// Absolute, as in training_parity.py: autocast rounds at other places than the policy's table.
constexpr double kBf16LossLimit = 5e-3;

// The settings of reference.py's train().
const train::AdamWOptions kAdamW = {.weight_decay = 0.01, .clip_grad_norm = 1.0};
train::Schedule schedule(std::int64_t steps) {
  return {.kind = config::SchedulerName::kCosine, .lr = 1e-3, .warmup_steps = 2, .total_steps = steps};
}

// What else than the model a run may get wrong.
struct RunMistake {
  double lr_factor = 1;
  train::AdamWOptions adamw = kAdamW;
};

struct Run {
  std::vector<double> loss, grad_norm;  // of each step
  at::Tensor start, end;                // the adapter's values, flat
};

Json history() { return Json::parse(read_file(golden("training/history.json")), "history.json"); }

std::vector<double> numbers(const std::string& preset, const std::string& key) {
  const Json all = history();
  std::vector<double> values;
  for (const Json& value : all.find(preset)->find(key)->array()) values.push_back(value.number());
  return values;
}

// Each step's rows in two micro-batches.
Run run(PrecisionPreset preset, const Mistake& mistake = {}, const RunMistake& wrong = {}) {
  GoldenModel golden("llama/plain", "training/start", preset, mistake);
  const data::TokenDataset rows = golden_rows("training/rows.jsonl");
  const std::int64_t steps = history().find("steps")->integer();
  const auto batch = static_cast<std::size_t>(history().find("batch")->integer());
  peft::AdapterStore& store = golden.adapters().store();
  train::AdamW optimizer(store, wrong.adamw);
  train::StepRunner runner(golden.model(), golden.adapters(), optimizer);
  Run result;
  result.start = store.values().clone();
  for (std::int64_t step = 0; step < steps; ++step) {
    std::vector<nn::Batch> micro;
    std::int64_t labels = 0;
    for (std::size_t part = 0; part < 2; ++part) {
      const std::size_t first = static_cast<std::size_t>(step) * batch + part * (batch / 2);
      const std::array<std::size_t, 2> taken{first, first + 1};
      micro.push_back(train::to_device(data::make_micro_batch(rows, taken), at::kCPU));
      labels += micro.back().label_count;
    }
    const double lr = wrong.lr_factor * schedule(steps).at(step);
    const auto numbers = runner.run(micro, labels, static_cast<std::uint64_t>(step), lr);
    result.loss.push_back(numbers.loss_sum.item<double>() / static_cast<double>(labels));
    result.grad_norm.push_back(numbers.grad_norm.item<double>());
  }
  result.end = store.values().clone();
  return result;
}

// Largest difference over the steps.
double furthest(const std::vector<double>& ours, const std::vector<double>& theirs, bool relative) {
  REQUIRE(ours.size() == theirs.size());
  double largest = 0;
  for (std::size_t i = 0; i < ours.size(); ++i) {
    const double difference = std::abs(ours[i] - theirs[i]);
    largest = std::max(largest, relative ? difference / std::abs(theirs[i]) : difference);
  }
  return largest;
}

struct Distances {
  double loss, grad_norm, update;
};

Distances fp32_distances(const Mistake& mistake = {}, const RunMistake& wrong = {}) {
  const Run ours = run(PrecisionPreset::kFp32, mistake, wrong);
  GoldenModel final("llama/plain", "training/final-fp32", PrecisionPreset::kFp32);
  const at::Tensor theirs = (final.adapters().store().values() - ours.start).to(at::kDouble);
  const at::Tensor difference = (ours.end - final.adapters().store().values()).to(at::kDouble);
  return {furthest(ours.loss, numbers("fp32", "loss"), true),
          furthest(ours.grad_norm, numbers("fp32", "grad_norm"), true),
          (difference.norm() / theirs.norm()).item<double>()};
}

double bf16_distance(const Mistake& mistake = {}) {
  return furthest(run(PrecisionPreset::kBf16, mistake).loss, numbers("bf16", "loss"), false);
}

const Mistake kWrongBase = {.config = [](Json& config) {
  Json rope = *config.find("rope_parameters");
  rope.set("rope_theta", 500000.0);
  config.set("rope_parameters", rope);
}};
const Mistake kNoMask = {.spec = [](nn::CausalLMSpec& spec) {
  for (auto& layer : spec.layers) layer.attention.options.causal = false;
}};
const Mistake kNoAttentionScale = {.spec = [](nn::CausalLMSpec& spec) {
  for (auto& layer : spec.layers) layer.attention.options.scale = 1;
}};
const Mistake kRsLora = {.lora = [](peft::LoraConfig& lora) { lora.use_rslora = true; }};
const Mistake kAlphaOff = {.lora = [](peft::LoraConfig& lora) { lora.alpha *= 1.1; }};

const std::vector<std::pair<std::string, Mistake>> kModelMistakes = {
    {"rotary base", kWrongBase}, {"no causal mask", kNoMask}, {"no attention scale", kNoAttentionScale}};

}  // namespace

TEST_CASE("ten fp32 steps equal PEFT's in loss, gradient norm and update") {
  const Distances distances = fp32_distances();
  CHECK(distances.loss < kLossLimit);
  CHECK(distances.grad_norm < kNormLimit);
  CHECK(distances.update < kUpdateLimit);
}

TEST_CASE("a wrong model is far outside every tolerance of the ten fp32 steps") {
  auto mistakes = kModelMistakes;
  mistakes.emplace_back("rsLoRA's scale", kRsLora);
  mistakes.emplace_back("LoRA's scale 10% off", kAlphaOff);
  for (const auto& [what, mistake] : mistakes) {
    CAPTURE(what);
    const Distances distances = fp32_distances(mistake);
    CHECK(distances.loss > 10 * kLossLimit);
    CHECK(distances.grad_norm > 10 * kNormLimit);
    CHECK(distances.update > 10 * kUpdateLimit);
  }
}

TEST_CASE("a wrong optimizer is far outside the update's tolerance") {
  CHECK(fp32_distances({}, {.lr_factor = 1.01}).update > 10 * kUpdateLimit);
  RunMistake no_decay, no_clip;
  no_decay.adamw.weight_decay = 0;
  no_clip.adamw.clip_grad_norm = 0;
  CHECK(fp32_distances({}, no_decay).update > 10 * kUpdateLimit);
  CHECK(fp32_distances({}, no_clip).update > 10 * kUpdateLimit);
}

TEST_CASE("the losses of ten bf16 steps stay near PEFT's, and a wrong model's do not") {
  // Whether this CPU has bf16 arithmetic or not.
  for (const auto products : {ops::HalfProducts::kNative, ops::HalfProducts::kWidened}) {
    CAPTURE(static_cast<int>(products));
    ops::set_half_products(products);
    CHECK(bf16_distance() < kBf16LossLimit);
  }
  ops::set_half_products(ops::HalfProducts::kByFeature);
  for (const auto& [what, mistake] : kModelMistakes) {
    CAPTURE(what);
    CHECK(bf16_distance(mistake) > 4 * kBf16LossLimit);
  }
  CHECK(bf16_distance(kRsLora) > 4 * kBf16LossLimit);
}
