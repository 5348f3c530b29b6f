// The optimizer's kernels on the fake card, beside libtorch's on the CPU.
#include <ATen/ATen.h>

#include <limits>

#include "card/report.h"
#include "peft/adapter_store.h"
#include "support/catch.h"
#include "support/tolerance.h"
#include "train/adamw.h"

using namespace lorikeet;

namespace {

const at::Device kCard("cuda:1");

at::Tensor wave(std::int64_t n, double frequency) {
  return at::sin(at::arange(n, at::TensorOptions(at::kFloat)) * frequency);
}

// An optimizer and what it works on.
struct Run {
  peft::AdapterStore store;
  std::unique_ptr<train::AdamW> optimizer;

  Run(const at::Device& device, std::int64_t n, const precision::Policy& policy,
      const train::AdamWOptions& options)
      : store(policy) {
    store.declare({{"m.lora_A.weight", {n / 3}}, {"m.lora_B.weight", {n - n / 3}}});
    store.allocate(device);
    store.values().copy_(wave(n, 1.0));
    store.refresh_compute();
    optimizer = std::make_unique<train::AdamW>(store, options);
  }

  double step(const at::Tensor& gradient, double lr, double scale = 1) {
    store.gradients().copy_(gradient * scale);
    return optimizer->step(lr, scale).cpu().item<double>();
  }
  at::Tensor compute() const { return store.compute_values().cpu(); }
};

precision::Policy policy_of(DType compute) { return precision::resolve({.compute = compute}); }

// fp32 arithmetic in another order: sums over n values, and roots.
void check_near(const at::Tensor& card, const at::Tensor& cpu) {
  CHECK(test::relative_distance(card.cpu(), cpu) < 1e-6);
}

void check_steps(std::int64_t n, DType compute, const train::AdamWOptions& options, double scale) {
  CAPTURE(n, static_cast<int>(compute), options.clip_grad_norm, scale);
  Run cpu(at::kCPU, n, policy_of(compute), options), card(kCard, n, policy_of(compute), options);
  for (int i = 0; i < 3; ++i) {
    const at::Tensor gradient = wave(n, 0.3 + i);
    card.store.gradients().copy_(gradient * scale);
    const std::uint64_t version = card.store.version();
    card::reset_report();
    const at::Tensor norm = card.optimizer->step(0.02 / (i + 1), scale);
    CHECK(card::report().kernels["adamw_cuda.cu"] == 3);
    CHECK(card::report().waits.empty());
    CHECK(card::report().hazards.empty());
    CHECK(card.store.version() == version + 1);
    CHECK(norm.cpu().item<double>() == Approx(cpu.step(gradient, 0.02 / (i + 1), scale)).epsilon(1e-6));
    check_near(card.store.values(), cpu.store.values());
    CHECK(at::equal(card.compute(), card.store.values().cpu().to(card.compute().scalar_type())));
    CHECK(card.store.gradients().cpu().count_nonzero().item<std::int64_t>() == 0);
  }
  check_near(card.optimizer->exp_avg(), cpu.optimizer->exp_avg());
  check_near(card.optimizer->exp_avg_sq(), cpu.optimizer->exp_avg_sq());
  CHECK(card.optimizer->updates().cpu().item<double>() == 3);
}

}  // namespace

TEST_CASE("the optimizer on a card makes the CPU's steps in three launches") {
  // Less than an access, a last one of three elements, more than one block, more than all partial sums.
  for (const std::int64_t n : {3, 1027, 5000, 1024 * 1024 + 2}) check_steps(n, DType::kBF16, {}, 1);
  const train::AdamWOptions other{
      .beta1 = 0.8, .beta2 = 0.95, .eps = 1e-3, .weight_decay = 0.3, .clip_grad_norm = 0.5};
  for (const DType compute : {DType::kF32, DType::kBF16, DType::kF16})
    check_steps(2050, compute, other, 1024);
  check_steps(64, DType::kBF16, {.clip_grad_norm = 1000}, 1);  // clips nothing
}

TEST_CASE("a gradient that is not finite changes nothing on a card, and is cleared") {
  for (const double clip : {0.0, 1.0}) {
    for (const double bad :
         {std::numeric_limits<double>::infinity(), std::numeric_limits<double>::quiet_NaN()}) {
      CAPTURE(clip, bad);
      Run run(kCard, 1030, policy_of(DType::kBF16), {.clip_grad_norm = clip});
      run.step(wave(1030, 0.7), 0.1);
      const at::Tensor values = run.store.values().clone(), m = run.optimizer->exp_avg().clone(),
                       v = run.optimizer->exp_avg_sq().clone(), compute = run.compute();
      at::Tensor gradient = wave(1030, 0.5);
      gradient[1028] = bad;
      CHECK_FALSE(std::isfinite(run.step(gradient, 0.1)));
      CHECK(at::equal(run.store.values().cpu(), values.cpu()));
      CHECK(at::equal(run.optimizer->exp_avg().cpu(), m.cpu()));
      CHECK(at::equal(run.optimizer->exp_avg_sq().cpu(), v.cpu()));
      CHECK(at::equal(run.compute(), compute));
      CHECK(run.optimizer->updates().cpu().item<double>() == 1);
      CHECK(run.store.gradients().cpu().count_nonzero().item<std::int64_t>() == 0);
    }
  }
}

TEST_CASE("an adapter in bf16, and LoRA+, take libtorch's optimizer on a card") {
  const auto kernels_of = [](const precision::Policy& policy, const train::AdamWOptions& options) {
    Run cpu(at::kCPU, 96, policy, options), card(kCard, 96, policy, options);
    card::reset_report();
    CHECK(card.step(wave(96, 0.3), 0.1) == Approx(cpu.step(wave(96, 0.3), 0.1)).epsilon(1e-6));
    CHECK(test::relative_distance(card.store.values().cpu(), cpu.store.values()) < 4e-3);
    return card::report().kernels["adamw_cuda.cu"];
  };
  CHECK(kernels_of(precision::resolve({.adapter = DType::kBF16}), {}) == 0);
  CHECK(kernels_of(policy_of(DType::kBF16), {.loraplus_lr_ratio = 4}) == 0);
  CHECK(kernels_of(policy_of(DType::kBF16), {}) == 3);
}
