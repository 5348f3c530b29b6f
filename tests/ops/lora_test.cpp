#include "ops/lora/lora_linear.h"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>
#include <torch/csrc/autograd/autograd.h>

#include "base/error.h"
#include "ops/matmul/matmul.h"
#include "support/catch.h"
#include "support/gradcheck.h"
#include "support/tolerance.h"

using namespace lorikeet::ops;
using lorikeet::Error;
using lorikeet::test::gradcheck;
using lorikeet::test::leaf;
using lorikeet::test::relative_distance;
using lorikeet::test::Tolerance;

namespace {

constexpr std::int64_t kTokens = 23, kIn = 24, kOut = 40;

const Tolerance kTolerances[] = {
    {at::kDouble, 1e-13, 1e-13, "the same fp64 arithmetic in another order"},
    {at::kFloat, 3e-6, 6e-6, "fp32 sums over rows and columns"},
    {at::kBFloat16, 1e-2, 1.2e-2,
     "natively up to three roundings to 8 bits: the product, x a^T and the update"},
    {at::kHalf, 1.5e-3, 2e-3, "the same with 11 bits"},
};

struct Forced {
  explicit Forced(HalfProducts choice) { set_half_products(choice); }
  ~Forced() { set_half_products(HalfProducts::kByFeature); }
};

// Two projections with a gap before, between and after them, of ranks 4 and 2.
struct Setup {
  at::Tensor x, weight, bias, upstream;
  std::vector<LoraProjection> projections;
  LoraDropout dropout;
};

Setup setup(at::ScalarType dtype) {
  const auto random = [&](at::IntArrayRef sizes, std::uint64_t seed) {
    return leaf(sizes, seed).detach().to(at::kBFloat16).to(dtype);  // what every dtype but fp16 holds exactly
  };
  Setup s{random({kTokens, kIn}, 31),
          random({kOut, kIn}, 32),
          random({kOut}, 33),
          random({kTokens, kOut}, 34),
          {},
          {}};
  const auto wide = dtype == at::kDouble ? at::kDouble : at::kFloat;
  const auto add = [&](std::int64_t begin, std::int64_t end, std::int64_t rank, double scale,
                       std::uint64_t seed) {
    s.projections.push_back({begin, end, random({rank, kIn}, seed), random({end - begin, rank}, seed + 1),
                             at::zeros({rank, kIn}, wide), at::zeros({end - begin, rank}, wide), scale});
  };
  add(5, 17, 4, 2.0, 35);
  add(20, 36, 2, 0.7, 37);
  s.dropout = {0.25, 1, 2, 3, at::zeros({kTokens}, at::kLong), at::arange(kTokens, at::kLong)};
  return s;
}

struct Result {
  at::Tensor out, dx;
  std::vector<at::Tensor> adapters;  // a, b of each projection
};

Result run_fused(const Setup& s, bool bias, bool dropout) {
  const auto x = s.x.detach().clone().requires_grad_(true);
  const auto weight = std::make_shared<ResidentWeight>(s.weight);
  const auto out = lora_linear(x, weight, bias ? s.bias : at::Tensor(), s.projections,
                               dropout ? std::optional<LoraDropout>(s.dropout) : std::nullopt,
                               at::ones({1}).requires_grad_(true));
  Result result{out, torch::autograd::grad({out}, {x}, {s.upstream})[0], {}};
  for (const auto& p : s.projections) {
    result.adapters.push_back(p.grad_a);
    result.adapters.push_back(p.grad_b);
  }
  return result;
}

Result run_reference(const Setup& s, bool bias, bool dropout) {
  const auto exact = [](const at::Tensor& t) { return t.detach().to(at::kDouble).requires_grad_(true); };
  const auto x = exact(s.x);
  auto projections = s.projections;
  std::vector<at::Tensor> inputs{x};
  for (auto& p : projections) {
    p.a = exact(p.a);
    p.b = exact(p.b);
    inputs.push_back(p.a);
    inputs.push_back(p.b);
  }
  const auto out =
      reference::lora_linear(x, s.weight.to(at::kDouble), bias ? s.bias.to(at::kDouble) : at::Tensor(),
                             projections, dropout ? std::optional<LoraDropout>(s.dropout) : std::nullopt);
  auto grads = torch::autograd::grad({out}, inputs, {s.upstream.to(at::kDouble)});
  return {out, grads[0], {grads.begin() + 1, grads.end()}};
}

// Counts leases, and how many are open.
class CountedWeight : public FrozenWeight {
 public:
  explicit CountedWeight(at::Tensor weight) : weight_(std::move(weight)) {}
  WeightLease lease() const override {
    ++taken;
    ++open;
    return WeightLease(weight_, [this] { --open; });
  }
  std::int64_t rows() const override { return weight_.size(0); }
  std::int64_t cols() const override { return weight_.size(1); }
  mutable int taken = 0, open = 0;

 private:
  at::Tensor weight_;
};

}  // namespace

TEST_CASE("the LoRA reference has the gradients of finite differences") {
  for (const bool dropout : {false, true}) {
    auto s = setup(at::kDouble);
    const auto f = [&](const std::vector<at::Tensor>& in) {
      auto projections = s.projections;
      for (std::size_t i = 0; i < 2; ++i) {
        projections[i].a = in[1 + 2 * i];
        projections[i].b = in[2 + 2 * i];
      }
      return reference::lora_linear(in[0], s.weight, s.bias, projections,
                                    dropout ? std::optional<LoraDropout>(s.dropout) : std::nullopt);
    };
    std::vector<at::Tensor> inputs{s.x.requires_grad_(true)};
    for (auto& p : s.projections) {
      inputs.push_back(p.a.requires_grad_(true));
      inputs.push_back(p.b.requires_grad_(true));
    }
    CHECK(gradcheck(f, inputs, 32).worst < 1e-7);
  }
}

TEST_CASE("lora_linear agrees with its reference in every dtype, natively and widened") {
  for (const auto choice : {HalfProducts::kNative, HalfProducts::kWidened}) {
    const Forced forced(choice);
    for (const auto& tolerance : kTolerances) {
      for (const bool bias : {false, true}) {
        for (const bool dropout : {false, true}) {
          INFO(c10::toString(tolerance.dtype)
               << ", bias " << bias << ", dropout " << dropout << ": " << tolerance.why);
          // The mask's factor 1 / (1 - p) is an fp32 number: half a unit in its last place, in every dtype.
          const double mask = dropout ? 6e-8 : 0;
          const auto s = setup(tolerance.dtype);
          const auto expected = run_reference(s, bias, dropout);
          const auto fused = run_fused(s, bias, dropout);
          CHECK(fused.out.scalar_type() == tolerance.dtype);
          CHECK(relative_distance(fused.out, expected.out) < tolerance.forward + mask);
          CHECK(relative_distance(fused.dx, expected.dx) < tolerance.backward + mask);
          for (std::size_t i = 0; i < expected.adapters.size(); ++i) {
            CHECK(relative_distance(fused.adapters[i], expected.adapters[i]) < tolerance.backward + mask);
          }
        }
      }
    }
  }
}

TEST_CASE("LoRA's tolerance notices a wrong scale, a shifted range and an unmasked input") {
  const auto s = setup(at::kDouble);
  const auto right = run_reference(s, true, true);
  auto scaled = s, shifted = s;
  scaled.projections[0].scale *= 1.05;
  shifted.projections[1].out_begin += 1;
  shifted.projections[1].out_end += 1;
  for (const auto& wrong : {run_reference(scaled, true, true), run_reference(shifted, true, true),
                            run_reference(s, true, false)}) {
    CHECK(relative_distance(wrong.out, right.out) > 1e-2);
    CHECK(relative_distance(wrong.dx, right.dx) > 1.2e-2);
    CHECK(relative_distance(wrong.adapters[0], right.adapters[0]) +
              relative_distance(wrong.adapters[2], right.adapters[2]) >
          1.2e-2);
  }
}

TEST_CASE("adapter gradients are added to what is there") {
  const auto s = setup(at::kFloat);
  run_fused(s, true, false);
  const auto once = s.projections[0].grad_a.clone();
  run_fused(s, true, false);
  CHECK(relative_distance(s.projections[0].grad_a, 2 * once) < 1e-6);
}

TEST_CASE("with only an anchor, adapters learn and nothing else gets a gradient") {
  const auto s = setup(at::kFloat);
  const auto anchor = at::ones({1}).requires_grad_(true);
  const auto weight = std::make_shared<CountedWeight>(s.weight);
  const auto out = lora_linear(s.x, weight, {}, s.projections, std::nullopt, anchor);
  CHECK(out.requires_grad());
  out.backward(s.upstream);
  CHECK_FALSE(anchor.grad().defined());
  CHECK(s.projections[0].grad_a.abs().sum().item<double>() > 0);
  CHECK(s.projections[1].grad_b.abs().sum().item<double>() > 0);
  CHECK(weight->taken == 1);  // backward had no use for it: x needs no gradient
  CHECK(weight->open == 0);
}

TEST_CASE("no lease outlives a call, and backward takes its own") {
  const auto s = setup(at::kFloat);
  const auto weight = std::make_shared<CountedWeight>(s.weight);
  const auto x = s.x.detach().clone().requires_grad_(true);
  for (const bool lora : {false, true}) {
    weight->taken = 0;
    const auto out = lora ? lora_linear(x, weight, s.bias, s.projections, std::nullopt, {})
                          : frozen_linear(x, weight, s.bias);
    CHECK(weight->taken == 1);
    CHECK(weight->open == 0);
    out.backward(s.upstream);
    CHECK(weight->taken == 2);
    CHECK(weight->open == 0);
  }
}

TEST_CASE("a frozen linear is the reference without projections") {
  for (const auto& tolerance : kTolerances) {
    const auto s = setup(tolerance.dtype);
    const auto x = s.x.detach().clone().requires_grad_(true);
    const auto out = frozen_linear(x, std::make_shared<ResidentWeight>(s.weight), s.bias);
    const auto exact = s.x.to(at::kDouble).requires_grad_(true);
    const auto expected =
        reference::lora_linear(exact, s.weight.to(at::kDouble), s.bias.to(at::kDouble), {}, std::nullopt);
    CHECK(relative_distance(out, expected) < tolerance.forward);
    CHECK(relative_distance(torch::autograd::grad({out}, {x}, {s.upstream})[0],
                            torch::autograd::grad({expected}, {exact}, {s.upstream.to(at::kDouble)})[0]) <
          tolerance.backward);
  }
}

TEST_CASE("without a graph nothing requires grad") {
  const auto s = setup(at::kFloat);
  const auto weight = std::make_shared<ResidentWeight>(s.weight);
  CHECK_FALSE(lora_linear(s.x, weight, {}, s.projections, std::nullopt, {}).requires_grad());
  const at::NoGradGuard no_grad;
  const auto anchor = at::ones({1}).requires_grad_(true);
  CHECK_FALSE(lora_linear(s.x, weight, {}, s.projections, std::nullopt, anchor).requires_grad());
}

TEST_CASE("lora_linear names what doesn't fit") {
  const auto s = setup(at::kFloat);
  const auto weight = std::make_shared<ResidentWeight>(s.weight);
  const auto call = [&](const at::Tensor& x, const std::vector<LoraProjection>& p) {
    return lora_linear(x, weight, {}, p, std::nullopt, {});
  };
  CHECK_THROWS_AS(call(at::randn({3, kIn + 1}), s.projections), Error);
  CHECK_THROWS_AS(call(s.x.to(at::kBFloat16), s.projections), Error);
  auto overlapping = s.projections;
  std::swap(overlapping[0], overlapping[1]);
  CHECK_THROWS_AS(call(s.x, overlapping), Error);
  auto whole = s.projections;
  whole[0].grad_a = whole[0].grad_a.to(at::kLong);
  CHECK_THROWS_AS(call(s.x, whole), Error);
  CHECK_THROWS_AS(frozen_linear(s.x, weight, at::ones({kOut - 1})), Error);
}
