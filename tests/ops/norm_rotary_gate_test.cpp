#include <ATen/ATen.h>
#include <torch/csrc/autograd/autograd.h>

#include <functional>

#include "base/error.h"
#include "ops/gated_mlp/gated_mlp.h"
#include "ops/rms_norm/rms_norm.h"
#include "ops/rotary/rotary.h"
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

using Function = std::function<at::Tensor(const at::Tensor&)>;

const Tolerance kTolerances[] = {
    {at::kDouble, 1e-13, 1e-13, "the same fp64 arithmetic in another order"},
    {at::kFloat, 2e-6, 4e-6, "fp32 sums over a row"},
    {at::kBFloat16, 4e-3, 6e-3, "one rounding to 8 bits each way, 2^-9 of the value rounded"},
    {at::kHalf, 6e-4, 1e-3, "one rounding to 11 bits each way"},
};

struct Distance {
  double forward, backward;
};

// The fused function in `dtype` against the reference in fp64, from inputs that `dtype` holds exactly.
Distance distance(const Function& fused, const Function& reference, const at::Tensor& input,
                  at::ScalarType dtype) {
  const auto x = input.detach().to(dtype).requires_grad_(true);
  const auto exact = x.detach().to(at::kDouble).requires_grad_(true);
  const auto y = fused(x);
  const auto expected = reference(exact);
  const auto upstream = at::randn(expected.sizes(), at::make_generator<at::CPUGeneratorImpl>(5)).to(dtype);
  const auto dx = torch::autograd::grad({y}, {x}, {upstream})[0];
  const auto expected_dx = torch::autograd::grad({expected}, {exact}, {upstream.to(at::kDouble)})[0];
  CHECK(y.scalar_type() == dtype);
  CHECK(dx.scalar_type() == dtype);
  return {relative_distance(y, expected), relative_distance(dx, expected_dx)};
}

void check_all_dtypes(const Function& fused, const Function& reference, const at::Tensor& input) {
  for (const auto& tolerance : kTolerances) {
    INFO(c10::toString(tolerance.dtype) << ": " << tolerance.why);
    const auto found = distance(fused, reference, input, tolerance.dtype);
    CHECK(found.forward < tolerance.forward);
    CHECK(found.backward < tolerance.backward);
  }
}

// Angles of rotary positions 0..tokens-1, R/2 = half.
std::pair<at::Tensor, at::Tensor> angles(std::int64_t tokens, std::int64_t half, double base = 10000) {
  const auto steps = at::arange(half, at::kDouble).mul(-1.0 / static_cast<double>(half));
  const auto angle =
      at::outer(at::arange(tokens, at::kDouble), at::pow(at::scalar_tensor(base, at::kDouble), steps));
  return {at::cos(angle), at::sin(angle)};
}

const HeadLayout kLayout{4, 2, 16};

}  // namespace

TEST_CASE("references of norm, rotary and gate have the gradients of finite differences") {
  const auto weight = leaf({12}, 3).detach();
  CHECK(
      gradcheck([&](const auto& in) { return reference::rms_norm(in[0], weight, 1e-5); }, {leaf({5, 12}, 1)})
          .worst < 1e-7);
  CHECK(gradcheck([&](const auto& in) { return reference::rms_norm(in[0], weight, 1e-5, true); },
                  {leaf({5, 12}, 1)})
            .worst < 1e-7);
  const auto [cos, sin] = angles(5, 8);
  CHECK(gradcheck([&, c = cos, s = sin](const auto& in) { return reference::rotary(in[0], c, s, kLayout); },
                  {leaf({5, kLayout.width()}, 2)})
            .worst < 1e-7);
  for (const auto activation : {Activation::kSilu, Activation::kGeluTanh, Activation::kGelu}) {
    CHECK(gradcheck([&](const auto& in) { return reference::gated_activation(in[0], activation); },
                    {leaf({5, 14}, 4)})
              .worst < 1e-7);
  }
}

TEST_CASE("rms_norm agrees with its reference in every dtype, forward and backward") {
  // Odd widths reach the loops' tails. (At width 1 the gradient is all cancellation: y hardly depends on x.)
  for (const std::int64_t width : {5, 7, 64, 515}) {
    for (const bool unit_offset : {false, true}) {
      const auto weight = leaf({width}, 6).detach().to(at::kBFloat16);  // what every dtype holds exactly
      check_all_dtypes(
          [&](const auto& x) { return rms_norm(x, weight.to(x.scalar_type()), 1e-5, unit_offset); },
          [&](const auto& x) { return reference::rms_norm(x, weight, 1e-5, unit_offset); },
          leaf({33, width}, 7));
    }
  }
}

TEST_CASE("rms_norm's tolerance notices a wrong eps, a missing offset and a centred variance") {
  const auto x = leaf({33, 64}, 8), weight = leaf({64}, 9).detach();
  const auto right = reference::rms_norm(x, weight, 1e-5);
  for (const auto& wrong : {reference::rms_norm(x, weight, 1e-2), reference::rms_norm(x, weight, 1e-5, true),
                            reference::rms_norm(x - x.mean(1, true), weight, 1e-5)}) {
    CHECK(relative_distance(wrong, right) > 4e-3);
  }
}

TEST_CASE("add_rms_norm adds the two gradients that reach the residual stream") {
  const auto weight = leaf({40}, 10).detach();
  for (const auto& tolerance : kTolerances) {
    INFO(c10::toString(tolerance.dtype) << ": " << tolerance.why);
    const auto run = [&](at::ScalarType dtype, bool fused) {
      const auto source = tolerance.dtype;
      auto residual = leaf({21, 40}, 11).detach().to(source).to(dtype).requires_grad_(true);
      auto delta = leaf({21, 40}, 12).detach().to(source).to(dtype).requires_grad_(true);
      const auto w = weight.to(at::kBFloat16).to(dtype);
      const auto [sum, normed] =
          fused ? add_rms_norm(residual, delta, w, 1e-6) : reference::add_rms_norm(residual, delta, w, 1e-6);
      const auto up1 = leaf({21, 40}, 13).detach().to(source).to(dtype);
      const auto up2 = leaf({21, 40}, 14).detach().to(source).to(dtype);
      auto grads = torch::autograd::grad({sum, normed}, {residual, delta}, {up1, up2});
      return std::vector<at::Tensor>{sum, normed, grads[0], grads[1]};
    };
    const auto got = run(tolerance.dtype, true), expected = run(at::kDouble, false);
    for (std::size_t i = 0; i < got.size(); ++i) {
      // The sum is rounded before it is normed, and the gradient of what was rounded: one rounding more.
      CHECK(relative_distance(got[i], expected[i]) < 2 * tolerance.backward);
    }
  }
}

TEST_CASE("add_rms_norm works when only one of its results is used") {
  const auto weight = at::ones({8}, at::kDouble);
  auto x = leaf({3, 8}, 15), delta = leaf({3, 8}, 16);
  auto [sum, normed] = add_rms_norm(x, delta, weight, 1e-6);
  CHECK(at::equal(torch::autograd::grad({sum.sum()}, {x}, {}, true)[0], at::ones_like(x)));
  const auto expected = std::get<1>(reference::add_rms_norm(x, delta, weight, 1e-6)).square().sum();
  CHECK(relative_distance(torch::autograd::grad({normed.square().sum()}, {x})[0],
                          torch::autograd::grad({expected}, {x})[0]) < 1e-12);
}

TEST_CASE("rotary agrees with its reference in every dtype, whole and partial heads") {
  for (const std::int64_t half : {8, 3}) {
    const auto [cos, sin] = angles(19, half);
    const auto c = cos.to(at::kFloat), s = sin.to(at::kFloat);
    check_all_dtypes([&](const auto& x) { return rotary(x * 1, c, s, kLayout); },
                     [&](const auto& x) { return reference::rotary(x, c, s, kLayout); },
                     leaf({19, kLayout.width()}, 17));
  }
}

TEST_CASE("rotary's tolerance notices another base and a shifted position") {
  const auto x = leaf({19, kLayout.width()}, 18);
  const auto [cos, sin] = angles(20, 8);
  const auto [cos2, sin2] = angles(20, 8, 500000);
  const auto right = reference::rotary(x, cos.slice(0, 0, 19), sin.slice(0, 0, 19), kLayout);
  CHECK(relative_distance(reference::rotary(x, cos2.slice(0, 0, 19), sin2.slice(0, 0, 19), kLayout), right) >
        0.01);
  CHECK(relative_distance(reference::rotary(x, cos.slice(0, 1), sin.slice(0, 1), kLayout), right) > 0.01);
}

TEST_CASE("rotary leaves its input alone when others may read it") {
  const auto [cos, sin] = angles(5, 8);
  const auto c = cos.to(at::kFloat), s = sin.to(at::kFloat);
  auto input = at::randn({5, kLayout.width()});
  const auto copy = input.clone();
  rotary(input, c, s, kLayout);  // the test still owns it
  CHECK(at::equal(input, copy));
  const auto expected = reference::rotary(copy, c, s, kLayout);
  const auto rotated = rotary(std::move(input), c, s, kLayout);
  CHECK(relative_distance(rotated, expected) < 1e-6);
}

TEST_CASE("the gate agrees with its reference in every dtype, with large inputs too") {
  for (const auto activation : {Activation::kSilu, Activation::kGeluTanh, Activation::kGelu}) {
    for (const double size : {1.0, 30.0}) {
      check_all_dtypes([&](const auto& x) { return gated_activation(x, activation); },
                       [&](const auto& x) { return reference::gated_activation(x, activation); },
                       leaf({11, 2 * 67}, 19).detach() * size);
    }
  }
}

TEST_CASE("the gate's tolerance tells the activations apart") {
  const auto x = leaf({11, 40}, 20);
  const auto silu = reference::gated_activation(x, Activation::kSilu);
  CHECK(relative_distance(reference::gated_activation(x, Activation::kGelu), silu) > 0.01);
}

TEST_CASE("norm, rotary and gate name what doesn't fit") {
  const auto x = at::randn({3, 8});
  CHECK_THROWS_AS(rms_norm(x, at::ones({7}), 1e-5), Error);
  CHECK_THROWS_AS(add_rms_norm(x, at::randn({3, 9}), at::ones({8}), 1e-5), Error);
  CHECK_THROWS_AS(gated_activation(at::randn({3, 9}), Activation::kSilu), Error);
  CHECK_THROWS_AS(rotary(at::randn({3, 9}), at::ones({3, 8}), at::ones({3, 8}), kLayout), Error);
  CHECK_THROWS_AS(rotary(at::randn({3, kLayout.width()}), at::ones({3, 9}), at::ones({3, 9}), kLayout),
                  Error);
}
