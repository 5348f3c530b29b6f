#include <ATen/ATen.h>
#include <torch/csrc/autograd/autograd.h>

#include "base/error.h"
#include "ops/forced_products.h"
#include "ops/linear_cross_entropy/linear_cross_entropy.h"
#include "ops/matmul/matmul.h"
#include "ops/wide.h"
#include "support/catch.h"
#include "support/gradcheck.h"
#include "support/tolerance.h"

using namespace lorikeet::ops;
using lorikeet::Error;
using lorikeet::test::Forced;
using lorikeet::test::gradcheck;
using lorikeet::test::leaf;
using lorikeet::test::relative_distance;
using lorikeet::test::Tolerance;

namespace {

constexpr std::int64_t kDrawn = 30, kTokens = 19, kWidth = 24, kVocabulary = 101, kRank = 3;

const Tolerance kTolerances[] = {
    {at::kDouble, 1e-13, 1e-12, "the same fp64 arithmetic in another order"},
    {at::kFloat, 2e-6, 1e-5, "fp32 sums; the adapter's gradients sum over all rows"},
    {at::kBFloat16, 5e-3, 2e-2, "natively logits and their gradient are rounded to 8 bits"},
    {at::kHalf, 1e-3, 4e-3, "the same with 11 bits"},
};

struct Setup {
  at::Tensor hidden, head, labels;
  std::vector<LoraProjection> lora;
};

Setup setup(at::ScalarType dtype, bool adapter) {
  const auto random = [&](at::IntArrayRef sizes, std::uint64_t seed) {
    return leaf(sizes, seed).detach().to(at::kBFloat16).to(dtype);
  };
  const auto generator = at::make_generator<at::CPUGeneratorImpl>(44);
  const at::Tensor rows = at::randperm(kDrawn, generator, at::kLong).slice(0, 0, kTokens);
  Setup s{random({kDrawn, kWidth}, 41).index_select(0, rows),
          random({kVocabulary, kWidth}, 42) * 0.5,
          at::randint(kVocabulary, {kTokens}, generator, at::kLong),
          {}};
  const auto wide = dtype == at::kDouble ? at::kDouble : at::kFloat;
  if (adapter) {
    s.lora.push_back({0, kVocabulary, random({kRank, kWidth}, 45) * 0.5,
                      random({kVocabulary, kRank}, 46) * 0.5, at::zeros({kRank, kWidth}, wide),
                      at::zeros({kVocabulary, kRank}, wide), 0.5});
  }
  return s;
}

struct Result {
  at::Tensor nll;
  std::vector<at::Tensor> grads;  // head, hidden, a, b
};

Result run_fused(const Setup& s, double loss_scale, const CrossEntropyOptions& options) {
  const at::Tensor head = at::zeros_like(s.head, wide_type(s.hidden));
  const auto found = linear_cross_entropy(s.hidden, s.head, s.lora, s.labels, loss_scale, options,
                                          /*hidden_gradient=*/true, head);
  Result result{found.loss, {head, found.hidden}};
  if (!s.lora.empty()) result.grads.insert(result.grads.end(), {s.lora[0].grad_a, s.lora[0].grad_b});
  return result;
}

// `more`: what else gets a gradient.
Result run_reference(const Setup& s, double loss_scale, const CrossEntropyOptions& options,
                     const std::vector<at::Tensor>& more = {}) {
  const auto exact = [](const at::Tensor& t) { return t.detach().to(at::kDouble).requires_grad_(true); };
  std::vector<at::Tensor> inputs{exact(s.head), exact(s.hidden)};
  auto lora = s.lora;
  for (auto& p : lora) {
    p.a = exact(p.a);
    p.b = exact(p.b);
    inputs.insert(inputs.end(), {p.a, p.b});
  }
  inputs.insert(inputs.end(), more.begin(), more.end());
  const auto loss = reference::token_nll(inputs[1], inputs[0], lora, s.labels, options).sum();
  return {loss, torch::autograd::grad({loss * loss_scale}, inputs)};
}

const CrossEntropyOptions kOptions[] = {{0, 1, 0},   {0, 1, 4},     {0, 0.3, 7},
                                        {2.0, 1, 0}, {2.0, 0.5, 5}, {0, 1, 1000}};

}  // namespace

TEST_CASE("the cross-entropy reference has the gradients of finite differences") {
  for (const auto& options : kOptions) {
    auto s = setup(at::kDouble, true);
    const auto f = [&](const std::vector<at::Tensor>& in) {
      auto lora = s.lora;
      lora[0].a = in[1];
      lora[0].b = in[2];
      return reference::token_nll(in[0], s.head, lora, s.labels, options);
    };
    CHECK(gradcheck(f,
                    {s.hidden.requires_grad_(true), s.lora[0].a.requires_grad_(true),
                     s.lora[0].b.requires_grad_(true)},
                    24)
              .worst < 1e-7);
  }
}

TEST_CASE(
    "cross-entropy agrees with its reference in every dtype, natively and widened, in chunks or whole") {
  for (const auto choice : {HalfProducts::kNative, HalfProducts::kWidened}) {
    const Forced forced(choice);
    for (const auto& tolerance : kTolerances) {
      for (const auto& options : kOptions) {
        for (const bool adapter : {false, true}) {
          INFO(c10::toString(tolerance.dtype)
               << ", cap " << options.soft_cap << ", scale " << options.scale << ", chunk "
               << options.chunk_rows << ", adapter " << adapter << ": " << tolerance.why);
          const auto s = setup(tolerance.dtype, adapter);
          const auto fused = run_fused(s, 1.0 / 64, options);
          const auto expected = run_reference(s, 1.0 / 64, options);
          CHECK(fused.nll.scalar_type() == (tolerance.dtype == at::kDouble ? at::kDouble : at::kFloat));
          CHECK(relative_distance(fused.nll, expected.nll) < tolerance.forward);
          for (std::size_t i = 0; i < expected.grads.size(); ++i) {
            CHECK(relative_distance(fused.grads[i], expected.grads[i]) < tolerance.backward);
          }
        }
      }
    }
  }
}

TEST_CASE(
    "DoRA's factors and their gradient agree with the reference, which has those of finite differences") {
  for (const auto& tolerance : kTolerances) {
    for (const CrossEntropyOptions& given : kOptions) {
      INFO(c10::toString(tolerance.dtype) << ", cap " << given.soft_cap << ", scale " << given.scale
                                          << ", chunk " << given.chunk_rows << ": " << tolerance.why);
      const auto s = setup(tolerance.dtype, true);
      const auto wide = wide_type(s.hidden);
      const at::Tensor magnitude = (leaf({kVocabulary}, 47).detach().abs() + 0.5).to(wide);
      const at::Tensor norms = (leaf({kVocabulary}, 48).detach().abs() + 0.5).to(wide);
      const at::Tensor gradient = at::full_like(magnitude, 1.0 / 128);  // what is there is added to
      CrossEntropyOptions options = given;
      options.dora = {magnitude, norms, gradient};
      const auto fused = run_fused(s, 1.0 / 64, options);
      const at::Tensor exact = magnitude.to(at::kDouble).requires_grad_();
      options.dora = {exact, norms.to(at::kDouble), {}};
      const auto expected = run_reference(s, 1.0 / 64, options, {exact});
      CHECK(relative_distance(fused.nll, expected.nll) < tolerance.forward);
      for (std::size_t i = 0; i < fused.grads.size(); ++i)
        CHECK(relative_distance(fused.grads[i], expected.grads[i]) < tolerance.backward);
      CHECK(relative_distance(gradient - 1.0 / 128, expected.grads.back()) < tolerance.backward);
      options.dora = {magnitude, norms, {}};
      const at::Tensor nll = token_nll(s.hidden, s.head, s.lora, s.labels, options);
      CHECK(relative_distance(nll.sum(), expected.nll) < tolerance.forward);
      options.dora = {};
      CHECK(relative_distance(token_nll(s.hidden, s.head, s.lora, s.labels, options), nll) > 1e-2);
    }
  }
  const auto s = setup(at::kDouble, true);
  const auto f = [&](const std::vector<at::Tensor>& in) {
    CrossEntropyOptions options{2.0, 0.5, 5};
    options.dora = {in[1], at::full({kVocabulary}, 0.7, at::kDouble), {}};
    return reference::token_nll(in[0], s.head, s.lora, s.labels, options);
  };
  CHECK(gradcheck(f, {s.hidden.clone().requires_grad_(true), leaf({kVocabulary}, 47)}, 24).worst < 1e-7);
}

TEST_CASE("dropout on the adapter's input agrees with its reference, in chunks of any size") {
  for (const auto& tolerance : kTolerances) {
    for (const std::int64_t chunk : {0, 4}) {
      INFO(c10::toString(tolerance.dtype) << ", chunk " << chunk << ": " << tolerance.why);
      const auto s = setup(tolerance.dtype, true);
      CrossEntropyOptions options{0, 1, chunk};
      const auto without = run_reference(s, 1.0 / 64, options);
      options.dropout = {0.25, 1, 2, 3, at::zeros({kTokens}, at::kLong), at::arange(kTokens, at::kLong)};
      const auto fused = run_fused(s, 1.0 / 64, options);
      const auto expected = run_reference(s, 1.0 / 64, options);
      CHECK(relative_distance(expected.nll, without.nll) > 1e-3);
      const double mask = 6e-8;  // its factor of 4/3 is an fp32 number
      CHECK(relative_distance(fused.nll, expected.nll) < tolerance.forward + mask);
      // Rounded once more by the factor.
      for (std::size_t i = 0; i < expected.grads.size(); ++i)
        CHECK(relative_distance(fused.grads[i], expected.grads[i]) < 2 * tolerance.backward + mask);
    }
  }
}

TEST_CASE("cross-entropy's tolerance notices a shifted label, a missing cap and a wrong scale") {
  const auto s = setup(at::kDouble, false);
  const auto right = run_reference(s, 1, {2.0, 1, 0});
  auto shifted = s;
  shifted.labels = (s.labels + 1).remainder(kVocabulary);
  for (const auto& wrong : {run_reference(shifted, 1, {2.0, 1, 0}), run_reference(s, 1, {0, 1, 0}),
                            run_reference(s, 1, {2.0, 1.05, 0})}) {
    CHECK(relative_distance(wrong.nll, right.nll) > 5e-3);
    for (const std::size_t i : {0, 1}) CHECK(relative_distance(wrong.grads[i], right.grads[i]) > 2e-2);
  }
}

TEST_CASE("token_nll gives the single terms and touches no gradient") {
  const auto s = setup(at::kFloat, true);
  const auto nll = token_nll(s.hidden, s.head, s.lora, s.labels, {0, 1, 4});
  CHECK(relative_distance(nll, reference::token_nll(s.hidden.to(at::kDouble), s.head, s.lora, s.labels, {})) <
        1e-5);
  CHECK(s.lora[0].grad_b.abs().sum().item<double>() == 0);
}

TEST_CASE("the sum of losses is the same in other chunks, to rounding") {
  const auto s = setup(at::kFloat, false);
  const auto whole = run_fused(s, 1, {}).nll.item<double>();
  for (const std::int64_t rows : {1, 3, 8})
    CHECK(run_fused(s, 1, {0, 1, rows}).nll.item<double>() == Approx(whole).epsilon(3e-6));
}

TEST_CASE("no labels give a loss of 0 and gradients of 0") {
  auto s = setup(at::kFloat, false);
  s.hidden = s.hidden.slice(0, 0, 0);
  s.labels = at::empty({0}, at::kLong);
  const auto result = run_fused(s, 1, {});
  CHECK(result.nll.item<double>() == 0);
  for (const auto& grad : result.grads) CHECK(grad.abs().sum().item<double>() == 0);
}

TEST_CASE("the adapter's gradients are added to what is there, and the hidden states' left out on demand") {
  const auto s = setup(at::kFloat, true), t = setup(at::kFloat, true);
  run_fused(s, 1, {});
  for (int pass = 0; pass < 2; ++pass) {
    const auto found = linear_cross_entropy(t.hidden, t.head, t.lora, t.labels, 1, {}, false);
    CHECK_FALSE(found.hidden.defined());
  }
  CHECK(relative_distance(t.lora[0].grad_a, 2 * s.lora[0].grad_a) < 1e-6);
  CHECK(relative_distance(t.lora[0].grad_b, 2 * s.lora[0].grad_b) < 1e-6);
}

TEST_CASE("large logits neither overflow nor lose the loss") {
  auto s = setup(at::kFloat, false);
  s.hidden = s.hidden * 300;
  const auto fused = run_fused(s, 1, {});
  const auto expected = run_reference(s, 1, {});
  CHECK(relative_distance(fused.nll, expected.nll) < 2e-6);
}

TEST_CASE("cross-entropy names what doesn't fit") {
  const auto s = setup(at::kFloat, true);
  const auto call = [&](const Setup& t) {
    return linear_cross_entropy(t.hidden, t.head, t.lora, t.labels, 1, {}, true);
  };
  auto outside = s, shorter = s, partial = s, narrow = s;
  outside.labels = s.labels + kVocabulary;
  CHECK_THROWS_AS(call(outside), Error);
  shorter.labels = s.labels.slice(0, 1);
  CHECK_THROWS_AS(call(shorter), Error);
  partial.lora[0].out_begin = 1;
  CHECK_THROWS_AS(call(partial), Error);
  narrow.hidden = s.hidden.slice(1, 1);
  CHECK_THROWS_AS(call(narrow), Error);
  const auto with_gradient = [&](const at::Tensor& gradient) {
    linear_cross_entropy(s.hidden, s.head, s.lora, s.labels, 1, {}, true, gradient);
  };
  CHECK_THROWS_AS(with_gradient(at::zeros({kVocabulary, kWidth + 1})), Error);
  CHECK_THROWS_AS(with_gradient(at::zeros({kVocabulary, kWidth}, at::kLong)), Error);
  // As a trained table has it whose gradients are bf16: near those in fp32, and rounded.
  const auto exact = at::zeros({kVocabulary, kWidth}),
             rounded = at::zeros({kVocabulary, kWidth}, at::kBFloat16);
  with_gradient(exact);
  with_gradient(rounded);
  CHECK(relative_distance(rounded, exact) < 5e-3);
  CHECK(relative_distance(rounded, exact) > 1e-4);
}
