#include "ops/norm/norm.h"

#include <ATen/ATen.h>

#include "base/error.h"
#include "ops/distance.h"

using namespace lorikeet::ops;
using namespace lorikeet::test;
using lorikeet::Error;

namespace {

at::Tensor fused(const at::Tensor& x, const NormParameters& parameters, const NormOptions& options) {
  return as_autograd(x, [=](const at::Tensor& in, Backward& backward) {
    NormStatistics statistics;
    auto y = norm(in, parameters, options, &statistics);
    backward = [=](const at::Tensor& dy) {
      return norm_backward(dy, {}, in, parameters, options, statistics);
    };
    return y;
  });
}

const NormOptions kForms[] = {{NormKind::kRms, 1e-5, false},
                              {NormKind::kRms, 1e-5, true},
                              {NormKind::kLayer, 1e-5, false},
                              {NormKind::kLayer, 1e-3, true}};

// What every dtype holds exactly; with a bias for every second seed.
NormParameters parameters(std::int64_t width, std::uint64_t seed) {
  const auto random = [&](std::uint64_t s) { return leaf({width}, s).detach().to(at::kBFloat16); };
  return {random(seed), seed % 2 == 0 ? random(seed + 100) : at::Tensor()};
}

NormParameters in_fp64(const NormParameters& p) {
  return {p.weight.to(at::kDouble), p.bias.defined() ? p.bias.to(at::kDouble) : p.bias};
}

}  // namespace

TEST_CASE("the norms' reference has the gradients of finite differences") {
  for (const auto& options : kForms) {
    for (const std::uint64_t seed : {3, 4}) {
      const auto p = in_fp64(parameters(12, seed));
      CHECK(gradcheck([&](const auto& in) { return reference::norm(in[0], p, options); }, {leaf({5, 12}, 1)})
                .worst < 1e-7);
    }
  }
}

TEST_CASE("norms agree with their reference in every dtype, forward and backward") {
  // Odd widths reach the loops' tails. (At width 1 the gradient is all cancellation: y hardly depends on x.)
  for (const std::int64_t width : {5, 7, 64, 515}) {
    for (const auto& options : kForms) {
      for (const std::uint64_t seed : {6, 7}) {
        const auto p = parameters(width, seed);
        check_all_dtypes([&](const auto& x) { return fused(x, p, options); },
                         [&](const auto& x) { return reference::norm(x, in_fp64(p), options); },
                         leaf({33, width}, 7));
      }
    }
  }
}

TEST_CASE("the norms' tolerance notices a wrong eps, a missing offset or bias, and the other kind") {
  const auto x = leaf({33, 64}, 8);
  const auto p = in_fp64(parameters(64, 10));
  const auto right = reference::norm(x, p, {NormKind::kRms, 1e-5, false});
  for (const auto& wrong : {reference::norm(x, p, {NormKind::kRms, 1e-2, false}),
                            reference::norm(x, p, {NormKind::kRms, 1e-5, true}),
                            reference::norm(x, p, {NormKind::kLayer, 1e-5, false}),
                            reference::norm(x, {p.weight, {}}, {NormKind::kRms, 1e-5, false})}) {
    CHECK(relative_distance(wrong, right) > 4e-3);
  }
}

TEST_CASE("heads of packed rows are normed one by one, and their gradient in place") {
  // 3 heads of 8 at column 4 of rows of 40.
  for (const auto& tolerance : kTolerances) {
    for (const auto& options : kForms) {
      INFO(c10::toString(tolerance.dtype) << ": " << tolerance.why);
      const auto p = parameters(8, 12);
      const auto heads_of = [](const at::Tensor& rows) {
        return rows.narrow(1, 4, 24).unflatten(1, {-1, 8});
      };
      const auto packed = leaf({9, 40}, 13).detach().to(tolerance.dtype);
      auto out = leaf({9, 40}, 14).detach().to(tolerance.dtype);
      const auto untouched = out.clone();
      auto y = heads_of(out);
      NormStatistics statistics;
      norm_out(y, heads_of(packed), p, options, &statistics);
      const auto exact = heads_of(packed).to(at::kDouble).requires_grad_(true);
      const auto expected = reference::norm(exact, in_fp64(p), options);
      CHECK(relative_distance(heads_of(out), expected) < tolerance.forward);
      CHECK(at::equal(out.narrow(1, 0, 4), untouched.narrow(1, 0, 4)));
      CHECK(at::equal(out.narrow(1, 28, 12), untouched.narrow(1, 28, 12)));

      auto gradient = leaf({9, 40}, 15).detach().to(tolerance.dtype);
      const auto upstream = gradient.clone();
      auto dy = heads_of(gradient);
      norm_backward_(dy, heads_of(packed), p, options, statistics);
      const auto dx = torch::autograd::grad({expected}, {exact}, {heads_of(upstream).to(at::kDouble)})[0];
      CHECK(relative_distance(heads_of(gradient), dx) < tolerance.backward);
      CHECK(at::equal(gradient.narrow(1, 28, 12), upstream.narrow(1, 28, 12)));
    }
  }
}

TEST_CASE("add_norm norms the rounded sum, and backward adds what comes past the norm") {
  for (const auto& options : kForms) {
    for (const auto& tolerance : kTolerances) {
      INFO(c10::toString(tolerance.dtype) << ": " << tolerance.why);
      const auto p = parameters(40, 10);
      const auto residual = leaf({21, 40}, 11).detach().to(tolerance.dtype);
      const auto delta = leaf({21, 40}, 12).detach().to(tolerance.dtype);
      at::Tensor sum;
      NormStatistics statistics;
      const auto normed = add_norm(residual, delta, p, options, sum, &statistics);
      CHECK(at::equal(sum, residual + delta));
      CHECK(at::equal(normed, norm(sum, p, options)));

      const auto dy = leaf({21, 40}, 13).detach().to(tolerance.dtype);
      const auto past = leaf({21, 40}, 14).detach().to(tolerance.dtype);
      at::Tensor again;
      const auto dx = norm_backward(dy, past, sum, p, options, statistics, &again);
      CHECK(at::equal(again, normed));
      CHECK(at::equal(dx, norm_backward(dy, past, sum, p, options, statistics)));
      const auto exact = sum.to(at::kDouble).requires_grad_(true);
      const auto expected = torch::autograd::grad({reference::norm(exact, in_fp64(p), options)}, {exact},
                                                  {dy.to(at::kDouble)})[0] +
                            past.to(at::kDouble);
      // A sum of gradients is rounded once more where there is no kernel of ours.
      CHECK(relative_distance(dx, expected) < 2 * tolerance.backward);
    }
  }
}

TEST_CASE("norms name what doesn't fit") {
  const auto x = at::randn({3, 8});
  CHECK_THROWS_AS(norm(x, {at::ones({7}), {}}, {}), Error);
  CHECK_THROWS_AS(norm(x, {at::ones({8}), at::ones({9})}, {}), Error);
  at::Tensor sum;
  CHECK_THROWS_AS(add_norm(x, at::randn({3, 9}), {at::ones({8}), {}}, {}, sum), Error);
}
