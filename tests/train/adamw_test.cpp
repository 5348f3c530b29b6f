#include "train/adamw.h"

#include <ATen/ATen.h>

#include <cmath>
#include <limits>
#include <map>

#include "support/catch.h"

using namespace lorikeet;
using namespace lorikeet::train;

namespace {

constexpr std::int64_t kSize = 24;

// A store of 24 values in two tensors.
struct Fixture {
  peft::AdapterStore store;
  explicit Fixture(const precision::Policy& policy = {}) : store(policy) {
    store.declare({{"a", {4, 4}}, {"b", {8}}});
    store.allocate(at::kCPU);
    store.values().copy_(wave(1.0));
    store.refresh_compute();
  }

  static at::Tensor wave(double frequency) {
    return at::sin(at::arange(kSize, at::TensorOptions(at::kFloat)) * frequency);
  }
};

// The same values as an adapter's module, in which B comes first in neither order.
struct LoraFixture {
  peft::AdapterStore store{precision::Policy{}};
  LoraFixture() {
    store.declare({{"m.lora_A.weight", {4}},
                   {"n.lora_A.weight", {4}},
                   {"m.lora_B.weight", {6}},
                   {"n.lora_B.weight", {2}}});
    store.declare({{"o.lora_A.weight", {2}}, {"o.lora_B.weight", {4}}, {"o.lora_magnitude_vector", {2}}});
    store.allocate(at::kCPU);
    store.values().copy_(Fixture::wave(1.0));
  }
};

// PyTorch's documented AdamW in fp64 (torch.optim.AdamW, "for t = 1 to ..."), with clip_grad_norm_ before it.
struct Formula {
  std::vector<double> value, m = std::vector<double>(kSize), v = std::vector<double>(kSize);
  AdamWOptions o;
  int t = 0;

  double step(const at::Tensor& gradient, double lr) {
    const at::Tensor g64 = gradient.to(at::kDouble);
    const double norm = g64.norm().item<double>();
    const double clip = o.clip_grad_norm > 0 ? std::min(1.0, o.clip_grad_norm / (norm + 1e-6)) : 1;
    ++t;
    for (std::size_t i = 0; i < value.size(); ++i) {
      const double g = clip * g64.const_data_ptr<double>()[i];
      value[i] -= lr * o.weight_decay * value[i];
      m[i] = o.beta1 * m[i] + (1 - o.beta1) * g;
      v[i] = o.beta2 * v[i] + (1 - o.beta2) * g * g;
      const double m_hat = m[i] / (1 - std::pow(o.beta1, t)), v_hat = v[i] / (1 - std::pow(o.beta2, t));
      value[i] -= lr * m_hat / (std::sqrt(v_hat) + o.eps);
    }
    return norm;
  }
};

// `multiplied`: what gradients come multiplied by, and are to be divided by.
void check_equals_formula(const AdamWOptions& options, double gradient_scale, double multiplied = 1) {
  Fixture f;
  AdamW optimizer(f.store, options);
  Formula formula{.o = options};
  for (std::int64_t i = 0; i < kSize; ++i) formula.value.push_back(f.store.values()[i].item<double>());
  for (int step = 0; step < 3; ++step) {
    const at::Tensor gradient = Fixture::wave(0.3 + step) * gradient_scale;
    const double lr = 0.02 / (step + 1);
    f.store.gradients().copy_(gradient * multiplied);
    const double norm = formula.step(gradient, lr);
    CHECK(optimizer.step(lr, multiplied).item<double>() == Approx(norm).epsilon(1e-6));
    for (std::int64_t i = 0; i < kSize; ++i) {
      CAPTURE(step, i);
      CHECK(f.store.values()[i].item<double>() ==
            Approx(formula.value[static_cast<std::size_t>(i)]).epsilon(1e-5).margin(1e-6));
    }
    CHECK(f.store.gradients().count_nonzero().item<std::int64_t>() == 0);
    CHECK(at::equal(f.store.compute(0), f.store.value(0).to(at::kBFloat16)));
  }
  CHECK(optimizer.updates().item<double>() == 3);
  CHECK(optimizer.exp_avg()[5].item<double>() == Approx(formula.m[5]).epsilon(1e-5));
  CHECK(optimizer.exp_avg_sq()[5].item<double>() == Approx(formula.v[5]).epsilon(1e-5));
}

}  // namespace

TEST_CASE("three steps equal PyTorch's formula") {
  check_equals_formula({}, 1);
  check_equals_formula({.beta1 = 0.8, .beta2 = 0.95, .eps = 1e-3, .weight_decay = 0.3}, 1);
}

TEST_CASE("gradients that come scaled give the same steps") {
  check_equals_formula({}, 1, 65536);
  check_equals_formula({.eps = 0.1, .clip_grad_norm = 1}, 50, 1024);
}

TEST_CASE("an adapter in bf16 moves as in fp32, to bf16's digits, and still counts its updates") {
  const precision::Policy policy = precision::resolve({.adapter = DType::kBF16});
  Fixture wide, narrow(policy);
  AdamW a(wide.store, {}), b(narrow.store, {});
  for (int step = 0; step < 300; ++step) {
    for (Fixture* f : {&wide, &narrow}) f->store.gradients().copy_(Fixture::wave(0.3));
    a.step(0.01);
    b.step(0.01);
  }
  CHECK(narrow.store.values().scalar_type() == at::kBFloat16);
  // Steps of 0.01 at values up to 4 lose up to half of bf16's last place, 2^-7 there, each time.
  CHECK((narrow.store.values().to(at::kFloat) - wide.store.values()).abs().max().item<double>() < 1.5);
  CHECK(b.updates().item<double>() == 300);  // bf16 would stay at 256
}

TEST_CASE("a gradient above the limit is clipped to it, one below is left alone") {
  check_equals_formula({.eps = 0.1, .clip_grad_norm = 1}, 50);
  check_equals_formula({.eps = 0.1, .clip_grad_norm = 1}, 0.01);
}

TEST_CASE("a gradient that is not finite makes the step a no-op and is cleared") {
  for (const double bad :
       {std::numeric_limits<double>::infinity(), std::numeric_limits<double>::quiet_NaN()}) {
    for (const double clip : {0.0, 1.0}) {
      CAPTURE(bad, clip);
      Fixture f;
      AdamW optimizer(f.store, {.clip_grad_norm = clip});
      f.store.gradients().copy_(Fixture::wave(0.7));
      optimizer.step(0.1);
      const at::Tensor values = f.store.values().clone(), m = optimizer.exp_avg().clone(),
                       v = optimizer.exp_avg_sq().clone();

      f.store.gradients().fill_(0.5);
      f.store.gradients()[3] = bad;
      CHECK_FALSE(std::isfinite(optimizer.step(0.1).item<double>()));
      CHECK(at::equal(f.store.values(), values));
      CHECK(at::equal(optimizer.exp_avg(), m));
      CHECK(at::equal(optimizer.exp_avg_sq(), v));
      CHECK(optimizer.updates().item<double>() == 1);
      CHECK(f.store.gradients().count_nonzero().item<std::int64_t>() == 0);

      f.store.gradients().fill_(0.5);
      optimizer.step(0.1);  // goes on as if the bad step had not been
      CHECK(optimizer.updates().item<double>() == 2);
      CHECK(f.store.values().isfinite().all().item<bool>());
    }
  }
}

TEST_CASE("LoRA+ multiplies the learning rate of B, and of B alone") {
  const auto run = [](const AdamWOptions& options, double lr) {
    LoraFixture f;
    AdamW optimizer(f.store, options);
    for (int step = 0; step < 3; ++step) {
      f.store.gradients().copy_(Fixture::wave(0.3 + step));
      optimizer.step(lr);
    }
    CHECK(optimizer.updates().item<double>() == 3);
    std::map<std::string, at::Tensor> values;
    for (std::size_t i = 0; i < f.store.size(); ++i)
      values[f.store.segment(i).name] = f.store.value(i).clone();
    return values;
  };
  AdamWOptions options{.weight_decay = 0.1, .clip_grad_norm = 1};
  const auto slow = run(options, 0.01), fast = run(options, 0.16);
  options.loraplus_lr_ratio = 16;
  for (const auto& [name, value] : run(options, 0.01)) {
    CAPTURE(name);
    const bool is_b = name.find("lora_B") != std::string::npos;
    CHECK(at::allclose(value, (is_b ? fast : slow).at(name), 1e-6, 1e-7));
    CHECK_FALSE(at::allclose(value, (is_b ? slow : fast).at(name), 1e-3, 1e-3));
  }
}

TEST_CASE("a frozen tensor is not decayed, and has no moments") {
  peft::AdapterStore store(precision::Policy{});
  store.declare(
      {{.name = "m.lora_A.weight", .shape = {4}, .frozen = true}, {.name = "m.lora_B.weight", .shape = {6}}});
  store.allocate(at::kCPU);
  store.all_values().fill_(1);
  for (const double ratio : {1.0, 4.0}) {
    AdamW optimizer(store, {.weight_decay = 0.5, .loraplus_lr_ratio = ratio});
    CHECK(optimizer.exp_avg().numel() == 6);
    store.gradients().fill_(1);
    optimizer.step(0.1);
    CHECK((store.value(0) == 1).all().item<bool>());
    CHECK((store.value(1) < 1).all().item<bool>());
  }
}
