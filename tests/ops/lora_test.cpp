#include "ops/lora/lora_linear.h"

#include <ATen/ATen.h>
#include <torch/csrc/autograd/autograd.h>

#include <stdexcept>

#include "base/error.h"
#include "ops/matmul/matmul.h"
#include "support/as_autograd.h"
#include "support/catch.h"
#include "support/gradcheck.h"
#include "support/tolerance.h"

using namespace lorikeet::ops;
using lorikeet::Error;
using lorikeet::test::as_autograd;
using lorikeet::test::Backward;
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

// lora_linear and its backward, as one function of x.
at::Tensor fused_linear(const at::Tensor& x, const Setup& s, const FrozenMatrix& weight, bool bias,
                        const std::vector<LoraProjection>& projections, bool dropout) {
  const auto mask = dropout ? std::optional<LoraDropout>(s.dropout) : std::nullopt;
  return as_autograd(x, [=](const at::Tensor& in, Backward& backward) {
    at::Tensor low_rank;
    auto out = lora_linear(in, weight, bias ? s.bias : at::Tensor(), projections, mask, &low_rank);
    backward = [=](const at::Tensor& dy) {
      return lora_linear_backward(dy, in, low_rank, weight, projections, mask, /*input_gradient=*/true);
    };
    return out;
  });
}

Result run_fused(const Setup& s, bool bias, bool dropout) {
  const auto x = s.x.detach().clone().requires_grad_(true);
  const auto out = fused_linear(x, s, frozen_matrix(s.weight), bias, s.projections, dropout);
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

TEST_CASE("without an input gradient adapters learn, and the weight isn't read") {
  const auto s = setup(at::kFloat);
  const auto expected = setup(at::kFloat);
  run_fused(expected, false, false);
  at::Tensor low_rank;
  lora_linear(s.x, frozen_matrix(s.weight), {}, s.projections, std::nullopt, &low_rank);
  const FrozenMatrix gone{&dense_format(lorikeet::DType::kF32), {}, kOut, kIn};
  CHECK_FALSE(
      lora_linear_backward(s.upstream, s.x, low_rank, gone, s.projections, std::nullopt, false).defined());
  for (std::size_t i = 0; i < s.projections.size(); ++i) {
    CHECK(at::equal(s.projections[i].grad_a, expected.projections[i].grad_a));
    CHECK(at::equal(s.projections[i].grad_b, expected.projections[i].grad_b));
  }
}

TEST_CASE("backward wants the input only where an A learns, and says which it reached") {
  auto s = setup(at::kFloat);
  bool reached[2] = {false, false};
  for (std::size_t i = 0; i < 2; ++i) s.projections[i].reached = &reached[i];
  const auto weight = frozen_matrix(s.weight);
  at::Tensor low_rank;
  lora_linear(s.x, weight, {}, s.projections, std::nullopt, &low_rank);
  const auto backward = [&](const std::vector<LoraProjection>& projections) {
    return lora_linear_backward(s.upstream, low_rank, weight, projections, std::nullopt, true);
  };
  const auto gradients = backward(s.projections);
  REQUIRE(gradients.want_input());
  CHECK_FALSE(reached[0]);  // not yet all of it
  add_a_gradients(gradients, s.x, std::nullopt);
  CHECK(reached[0]);
  CHECK(reached[1]);
  for (std::size_t i = 0; i < 2; ++i) {
    reached[i] = false;
    s.projections[i].grad_a = at::Tensor();
  }
  CHECK_FALSE(backward(s.projections).want_input());
  CHECK(reached[0]);
  CHECK(reached[1]);
  CHECK_FALSE(backward({}).want_input());
}

TEST_CASE("no rows need no weight, and adapters count as reached with gradients that stay") {
  Setup s = setup(at::kFloat);
  bool reached = false;
  for (LoraProjection& p : s.projections) p.reached = &reached;
  const FrozenMatrix unreadable{&dense_format(lorikeet::DType::kF32), at::empty({0}, at::kByte), kOut, kIn};
  const at::Tensor none = s.x.slice(0, 0, 0), no_dy = s.upstream.slice(0, 0, 0);
  at::Tensor low_rank;
  CHECK(lora_linear(none, unreadable, s.bias, s.projections, std::nullopt, &low_rank).sizes() ==
        at::IntArrayRef{0, kOut});
  CHECK(low_rank.sizes() == at::IntArrayRef{0, 6});
  const auto gradients =
      lora_linear_backward(no_dy, low_rank, unreadable, s.projections, std::nullopt, /*input_gradient=*/true);
  CHECK(gradients.dx.sizes() == at::IntArrayRef{0, kIn});
  CHECK_FALSE(gradients.want_input());
  CHECK(reached);
  for (const LoraProjection& p : s.projections)
    CHECK(p.grad_a.count_nonzero().item<std::int64_t>() + p.grad_b.count_nonzero().item<std::int64_t>() == 0);
}

TEST_CASE("a result goes where it is wanted, and an unfit place is an error") {
  const Setup s = setup(at::kFloat);
  const FrozenMatrix weight = frozen_matrix(s.weight);
  const at::Tensor all = at::full({2 * kTokens, kOut}, 7.0, at::kFloat), place = all.slice(0, kTokens);
  at::Tensor low_rank;
  const at::Tensor out =
      lora_linear(s.x, weight, s.bias, s.projections, std::nullopt, &low_rank, nullptr, place);
  CHECK(out.data_ptr() == place.data_ptr());
  CHECK(at::equal(out, lora_linear(s.x, weight, s.bias, s.projections, std::nullopt)));
  CHECK(at::equal(all.slice(0, 0, kTokens), at::full({kTokens, kOut}, 7.0, at::kFloat)));
  const at::Tensor dx = at::empty({kTokens, kIn}, at::kFloat);
  const auto gradients =
      lora_linear_backward(s.upstream, low_rank, weight, s.projections, std::nullopt, true, nullptr, dx);
  CHECK(gradients.dx.data_ptr() == dx.data_ptr());
  CHECK_THROWS_AS(lora_linear(s.x, weight, s.bias, s.projections, std::nullopt, nullptr, nullptr, all),
                  Error);
}

TEST_CASE("backward leaves the input gradient's term, and its right operand's gradient, to a reader") {
  auto s = setup(at::kFloat);
  // One projection, or two whose gradients lie below each other or apart.
  const at::Tensor both = at::zeros({6, kIn});
  const auto weight = frozen_matrix(s.weight);
  const auto backward = [&](const std::vector<LoraProjection>& projections, const auto& dropout,
                            LeftTerms& left) {
    at::Tensor low_rank;
    lora_linear(s.x, weight, {}, projections, dropout, &low_rank);
    return lora_linear_backward(s.upstream, low_rank, weight, projections, dropout, true, &left);
  };
  const auto any = [](const at::Tensor&, const std::vector<LowRankTerm>&) { return true; };

  for (auto& p : s.projections) p.scale = 2;
  LeftTerms apart(any);
  backward(s.projections, std::nullopt, apart);
  CHECK(apart.terms.size() == 1);
  CHECK_FALSE(apart.right_gradient.defined());

  bool reached = false;
  s.projections[0].reached = &reached;
  s.projections[0].grad_a = both.slice(0, 0, 4);
  s.projections[1].grad_a = both.slice(0, 4, 6);
  LeftTerms left(any);
  const auto gradients = backward(s.projections, std::nullopt, left);
  REQUIRE(left.right_gradient.defined());
  CHECK(left.right_gradient.sizes() == both.sizes());
  CHECK(left.right_gradient.data_ptr() == both.data_ptr());
  add_a_gradients(gradients, s.x, std::nullopt);
  const LowRankTerm& term = left.terms[0];
  CHECK(relative_distance(both, term.scale * at::mm(term.left.t(), s.x)) < 1e-5);
  reached = false;
  a_gradients_added(gradients);
  CHECK(reached);

  LeftTerms dropped(any);
  backward(s.projections, std::optional(s.dropout), dropped);
  CHECK(dropped.terms.empty());
  CHECK_FALSE(dropped.right_gradient.defined());
  s.projections[0].grad_a = both.slice(0, 0, 3);  // the last rank of A is frozen
  s.projections[1].grad_a = both.slice(0, 3, 5);
  LeftTerms frozen(any);
  backward(s.projections, std::nullopt, frozen);
  CHECK_FALSE(frozen.right_gradient.defined());
}

TEST_CASE("a frozen linear is the reference without projections") {
  for (const auto& tolerance : kTolerances) {
    const auto s = setup(tolerance.dtype);
    const auto x = s.x.detach().clone().requires_grad_(true);
    const auto out = fused_linear(x, s, frozen_matrix(s.weight), true, {}, false);
    const auto exact = s.x.to(at::kDouble).requires_grad_(true);
    const auto expected =
        reference::lora_linear(exact, s.weight.to(at::kDouble), s.bias.to(at::kDouble), {}, std::nullopt);
    CHECK(relative_distance(out, expected) < tolerance.forward);
    CHECK(relative_distance(torch::autograd::grad({out}, {x}, {s.upstream})[0],
                            torch::autograd::grad({expected}, {exact}, {s.upstream.to(at::kDouble)})[0]) <
          tolerance.backward);
  }
}

TEST_CASE("lora_linear names what doesn't fit") {
  const auto s = setup(at::kFloat);
  const auto weight = frozen_matrix(s.weight);
  const auto call = [&](const at::Tensor& x, const std::vector<LoraProjection>& p) {
    return lora_linear(x, weight, {}, p, std::nullopt);
  };
  CHECK_THROWS_AS(call(at::randn({3, kIn + 1}), s.projections), Error);
  CHECK_THROWS_AS(call(s.x.to(at::kBFloat16), s.projections), Error);
  auto overlapping = s.projections;
  std::swap(overlapping[0], overlapping[1]);
  CHECK_THROWS_AS(call(s.x, overlapping), Error);
  auto whole = s.projections;
  whole[0].grad_a = whole[0].grad_a.to(at::kLong);
  CHECK_THROWS_AS(call(s.x, whole), Error);
  CHECK_THROWS_AS(lora_linear(s.x, weight, at::ones({kOut - 1}), {}, std::nullopt), Error);
}
