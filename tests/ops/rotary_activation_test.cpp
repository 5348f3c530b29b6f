#include <ATen/ATen.h>

#include <cmath>

#include "base/error.h"
#include "ops/activation/activation.h"
#include "ops/distance.h"
#include "ops/rotary/rotary.h"

using namespace lorikeet::ops;
using namespace lorikeet::test;
using lorikeet::Error;

namespace {

// Angles of rotary positions 0..tokens-1, R/2 = half.
std::pair<at::Tensor, at::Tensor> angles(std::int64_t tokens, std::int64_t half, double base = 10000) {
  const auto steps = at::arange(half, at::kDouble).mul(-1.0 / static_cast<double>(half));
  const auto angle =
      at::outer(at::arange(tokens, at::kDouble), at::pow(at::scalar_tensor(base, at::kDouble), steps));
  return {at::cos(angle), at::sin(angle)};
}

const HeadLayout kLayout{4, 2, 16}, kInterleaved{4, 2, 16, true};

at::Tensor rotary(const at::Tensor& x, const at::Tensor& cos, const at::Tensor& sin,
                  const HeadLayout& layout) {
  return as_autograd(x, [=](const at::Tensor& in, Backward& backward) {
    backward = [=](const at::Tensor& dy) {
      return rotate_backward(HeadGradients::of(dy.clone(), layout), cos, sin, layout);
    };
    auto out = in.clone();
    rotate(out, cos, sin, layout);
    return out;
  });
}

// Rows of kLayout with the first 2 * half dimensions of their heads moved from neighbours to halves.
at::Tensor in_halves(const at::Tensor& x, std::int64_t half) {
  const auto heads = x.view({x.size(0), -1, kLayout.head_dim});
  return at::cat({heads.slice(2, 0, 2 * half, 2), heads.slice(2, 1, 2 * half, 2), heads.slice(2, 2 * half)},
                 2)
      .view_as(x);
}

at::Tensor gated(const at::Tensor& x, Activation kind) {
  return as_autograd(x, [=](const at::Tensor& in, Backward& backward) {
    backward = [=](const at::Tensor& dy) {
      auto dx = in.clone();
      gated_activation_backward_(dy, dx, kind);
      return dx;
    };
    return gated_activation(in, kind);
  });
}

at::Tensor plain(const at::Tensor& x, Activation kind) {
  return as_autograd(x, [=](const at::Tensor& in, Backward& backward) {
    backward = [=](const at::Tensor& dy) {
      auto dx = in.clone();
      activation_backward_(dy, dx, kind);
      return dx;
    };
    return activation(in, kind);
  });
}

constexpr Activation kGatedKinds[] = {Activation::kSilu, Activation::kGeluTanh, Activation::kGelu,
                                      Activation::kClampedSwiglu};

// Those that are a function of one number too.
bool is_plain(Activation kind) { return kind != Activation::kClampedSwiglu; }

// Gates and ups at the clamped SwiGLU's limits, next to them on both sides and far from them, all pairs of
// them in a row; every dtype holds them. Next to 7 bf16 has 7.03125 and 6.96875.
at::Tensor at_the_limits() {
  const at::Tensor values = at::tensor({-9984.0, -30.0, -7.03125, -7.0, -6.96875, -1.0, -0.5, 0.0, 0.5, 3.0,
                                        6.96875, 7.0, 7.03125, 30.0, 9984.0},
                                       at::kDouble);
  const auto pairs = at::meshgrid({values, values}, "ij");
  return at::cat({pairs[0].reshape({1, -1}), pairs[1].reshape({1, -1})}, 1);
}

}  // namespace

TEST_CASE("references of rotary and activations have the gradients of finite differences") {
  const auto [cos, sin] = angles(5, 8);
  for (const HeadLayout& layout : {kLayout, kInterleaved}) {
    CHECK(gradcheck([&, c = cos, s = sin](const auto& in) { return reference::rotary(in[0], c, s, layout); },
                    {leaf({5, layout.width()}, 2)})
              .worst < 1e-7);
  }
  for (const auto kind : kGatedKinds) {
    CHECK(gradcheck([&](const auto& in) { return reference::gated_activation(in[0], kind); },
                    {leaf({5, 14}, 4)})
              .worst < 1e-7);
    if (!is_plain(kind)) continue;
    CHECK(gradcheck([&](const auto& in) { return reference::activation(in[0], kind); }, {leaf({5, 7}, 4)})
              .worst < 1e-7);
  }
}

TEST_CASE("rotary agrees with its reference in every dtype, whole and partial heads") {
  for (const std::int64_t half : {8, 3}) {
    const auto [cos, sin] = angles(19, half);
    const auto c = cos.to(at::kFloat), s = sin.to(at::kFloat);
    for (const HeadLayout& layout : {kLayout, kInterleaved}) {
      check_all_dtypes([&](const auto& x) { return rotary(x, c, s, layout); },
                       [&](const auto& x) { return reference::rotary(x, c, s, layout); },
                       leaf({19, layout.width()}, 17));
    }
  }
}

TEST_CASE("interleaved rotary turns neighbours as the other layout turns halves") {
  for (const std::int64_t half : {8, 3}) {
    const auto [cos, sin] = angles(19, half);
    // Of all heads: value heads are moved too, and stay where they then are.
    const auto x = leaf({19, kLayout.width()}, 20).detach();
    const auto neighbours = reference::rotary(x, cos, sin, kInterleaved);
    CHECK(at::equal(in_halves(neighbours, half), reference::rotary(in_halves(x, half), cos, sin, kLayout)));
    CHECK(relative_distance(neighbours, reference::rotary(x, cos, sin, kLayout)) > 0.01);
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

TEST_CASE("activations agree with their references in every dtype, with large inputs too") {
  for (const auto kind : kGatedKinds) {
    for (const double size : {1.0, 5.0, 30.0}) {
      check_all_dtypes([&](const auto& x) { return gated(x, kind); },
                       [&](const auto& x) { return reference::gated_activation(x, kind); },
                       leaf({11, 2 * 67}, 19).detach() * size);
      if (!is_plain(kind)) continue;
      check_all_dtypes([&](const auto& x) { return plain(x, kind); },
                       [&](const auto& x) { return reference::activation(x, kind); },
                       leaf({11, 67}, 19).detach() * size);
    }
  }
}

TEST_CASE("the activations' backward gives forward's result again, to the bit, and the same gradient") {
  for (const auto kind : kGatedKinds) {
    for (const auto dtype : {at::kFloat, at::kBFloat16, at::kHalf, at::kDouble}) {
      CAPTURE(static_cast<int>(kind), c10::toString(dtype));
      const at::Tensor gate_up = leaf({11, 2 * 67}, 21).detach().to(dtype),
                       dy = leaf({11, 67}, 22).detach().to(dtype);
      at::Tensor expected = gate_up.clone(), got = gate_up.clone(), again;
      gated_activation_backward_(dy, expected, kind);
      gated_activation_backward_(dy, got, kind, &again);
      CHECK(at::equal(got, expected));
      CHECK(at::equal(again, gated_activation(gate_up, kind)));
      if (!is_plain(kind)) continue;
      const at::Tensor x = gate_up.narrow(1, 0, 67).contiguous();
      expected = x.clone(), got = x.clone();
      again.reset();
      activation_backward_(dy, expected, kind);
      activation_backward_(dy, got, kind, &again);
      CHECK(at::equal(got, expected));
      CHECK(at::equal(again, activation(x, kind)));
    }
  }
}

TEST_CASE("the clamped SwiGLU's reference is the formula with limits on gate and up") {
  const at::Tensor x = leaf({11, 40}, 23).detach() * 6;
  const auto halves = x.chunk(2, 1);
  const at::Tensor gate = at::where(halves[0] > 7, 7 + 0 * halves[0], halves[0]);
  const at::Tensor up = at::where(halves[1].abs() > 7, 7 * halves[1].sign(), halves[1]);
  const at::Tensor y = (up + 1) * gate / (1 + at::exp(-1.702 * gate));
  CHECK(at::allclose(reference::gated_activation(x, Activation::kClampedSwiglu), y, 1e-13, 1e-13));
  // Away from the limits, where finite differences are right.
  const auto within = [](const at::Tensor& in) {
    return at::where((in.abs() - 7).abs() < 1e-2, at::full_like(in, 5), in).requires_grad_(true);
  };
  CHECK(
      gradcheck([](const auto& in) { return reference::gated_activation(in[0], Activation::kClampedSwiglu); },
                {within(x)})
          .worst < 1e-7);
}

TEST_CASE(
    "the clamped SwiGLU and its reference have the gradients of torch's clamp at its limits and beyond "
    "them") {
  constexpr auto kKind = Activation::kClampedSwiglu;
  const at::Tensor x = at_the_limits();
  const std::int64_t pairs = x.size(1) / 2;
  for (const auto& tolerance : kTolerances) {
    INFO(c10::toString(tolerance.dtype) << ": " << tolerance.why);
    const auto exact = x.clone().requires_grad_(true);
    const auto gate = exact.narrow(1, 0, pairs).clamp_max(7), up = exact.slice(1, pairs).clamp(-7, 7);
    const auto expected = (up + 1) * gate * at::sigmoid(1.702 * gate);
    const auto expected_dx = torch::autograd::grad({expected}, {exact}, {at::ones_like(expected)})[0];
    at::Tensor gate_up = x.to(tolerance.dtype), dx = gate_up.clone();
    gated_activation_backward_(at::ones({1, pairs}, gate_up.options()), dx, kKind);
    // Of each number by itself: large ones hide nothing.
    const auto is_close = [&](const at::Tensor& found, const at::Tensor& wanted, double relative) {
      return at::allclose(found.to(at::kDouble), wanted, 2 * relative, 1e-6);
    };
    const auto x_again = x.clone().requires_grad_(true);
    const auto reference = reference::gated_activation(x_again, kKind);
    CHECK(is_close(reference.detach(), expected.detach(), 1e-13));
    CHECK(is_close(torch::autograd::grad({reference}, {x_again}, {at::ones_like(reference)})[0], expected_dx,
                   1e-13));
    CHECK(is_close(gated_activation(gate_up, kKind), expected.detach(), tolerance.forward));
    CHECK(is_close(dx, expected_dx, tolerance.backward));
    // A limit itself has the gradient of what is within, whatever is beyond has none.
    const at::Tensor gates = x.narrow(1, 0, pairs), ups = x.slice(1, pairs);
    CHECK(
        at::equal(dx.narrow(1, 0, pairs).masked_select(gates > 7).count_nonzero(), at::zeros({}, at::kLong)));
    CHECK(
        at::equal(dx.slice(1, pairs).masked_select(ups.abs() > 7).count_nonzero(), at::zeros({}, at::kLong)));
    CHECK(dx.slice(1, pairs)
              .masked_select((ups.abs() == 7).logical_and(gates == 3))
              .count_nonzero()
              .item<int>() == 2);
    CHECK(dx.narrow(1, 0, pairs)
              .masked_select((gates == 7).logical_and(ups == 3))
              .count_nonzero()
              .item<int>() == 1);
  }
}

TEST_CASE("the clamped SwiGLU passes a NaN on") {
  for (const auto dtype : {at::kFloat, at::kBFloat16, at::kDouble}) {
    at::Tensor x = at::ones({1, 40}, dtype);
    x[0][3] = std::nan("");
    x[0][20 + 7] = std::nan("");
    const at::Tensor y = gated_activation(x, Activation::kClampedSwiglu);
    CHECK(y.isnan().sum().item<std::int64_t>() == 2);
    CHECK((y[0][3].isnan().item<bool>() && y[0][7].isnan().item<bool>()));
  }
}

TEST_CASE("exact GELU is right relative to itself in its tail too") {
  const at::Tensor x = at::linspace(-12.9, 12.9, 12901).view({-1, 1});
  const at::Tensor wide = x.to(at::kDouble);
  const at::Tensor expected = wide * at::erfc(wide / -std::sqrt(2.0)) / 2;
  const at::Tensor error = (activation(x, Activation::kGelu) / expected - 1).abs().nan_to_num(0.0);
  CHECK(error.masked_select(x.abs() < 4).max().item<double>() < 1e-6);
  // e^(-x^2 / 2) of a rounded x^2 / 2, which is up to 83.
  CHECK(error.max().item<double>() < 1e-5);
}

TEST_CASE("the activations' tolerance tells them apart") {
  const auto x = leaf({11, 40}, 20);
  for (const bool is_gated : {false, true}) {
    const auto of = [&](Activation kind) {
      return is_gated ? reference::gated_activation(x, kind) : reference::activation(x, kind);
    };
    CHECK(relative_distance(of(Activation::kGelu), of(Activation::kSilu)) > 0.01);
  }
  // Another limit, SiLU itself, no 1 beside up.
  const at::Tensor large = x.detach() * 6, gate = large.slice(1, 0, 20), up = large.slice(1, 20);
  const auto swiglu = [&](double limit, double alpha, double shift) {
    const at::Tensor g = gate.clamp_max(limit);
    return (up.clamp(-limit, limit) + shift) * g * at::sigmoid(alpha * g);
  };
  const at::Tensor right = reference::gated_activation(large, Activation::kClampedSwiglu);
  CHECK(relative_distance(swiglu(7, 1.702, 1), right) < 1e-12);
  for (const at::Tensor& wrong : {swiglu(7.2, 1.702, 1), swiglu(7, 1, 1), swiglu(7, 1.702, 0)})
    CHECK(relative_distance(wrong, right) > 6e-3);
  // The two kinds of GELU differ by 5e-4 at most: in fp32 that shows.
  CHECK(relative_distance(reference::activation(x, Activation::kGelu),
                          reference::activation(x, Activation::kGeluTanh)) > 2e-5);
}

TEST_CASE("rotary and activations name what doesn't fit") {
  auto odd = at::randn({3, 9}), heads = at::randn({3, kLayout.width()}), even = at::randn({3, 8});
  CHECK_THROWS_AS(gated_activation(odd, Activation::kSilu), Error);
  CHECK_THROWS_AS(activation(at::randn({9}), Activation::kSilu), Error);
  CHECK_THROWS_AS(activation(even, Activation::kClampedSwiglu), Error);
  CHECK_THROWS_AS(activation_backward_(at::randn({3, 8}), even, Activation::kClampedSwiglu), Error);
  CHECK_THROWS_AS(gated_activation_backward_(at::randn({3, 5}), even, Activation::kSilu), Error);
  CHECK_THROWS_AS(activation_backward_(at::randn({2, 8}), even, Activation::kSilu), Error);
  CHECK_THROWS_AS(rotate(odd, at::ones({3, 8}), at::ones({3, 8}), kLayout), Error);
  CHECK_THROWS_AS(rotate(heads, at::ones({3, 9}), at::ones({3, 9}), kLayout), Error);
}
