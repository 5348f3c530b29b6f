#include "ops/matmul/matmul.h"

#include <ATen/ATen.h>

#include "ops/forced_products.h"
#include "support/catch.h"
#include "support/tolerance.h"

using namespace lorikeet::ops;
using lorikeet::test::Forced;
using lorikeet::test::relative_distance;
using lorikeet::test::Tolerance;

namespace {

const Tolerance kTolerances[] = {
    {at::kDouble, 1e-14, 1e-14, "sums of 700 products in fp64"},
    {at::kFloat, 3e-6, 3e-6, "sums of 700 products in fp32"},
    {at::kBFloat16, 6e-3, 6e-3, "up to two roundings to 8 bits, 2^-9 each of the value rounded"},
    {at::kHalf, 8e-4, 8e-4, "up to two roundings to 11 bits"},
};

}  // namespace

TEST_CASE("products agree with fp64 in every dtype, widened and native") {
  at::manual_seed(1);
  const std::int64_t m = 37, k = 700, n = 600;  // more than one panel of 16-bit weights
  for (const auto choice : {HalfProducts::kNative, HalfProducts::kWidened}) {
    const Forced forced(choice);
    for (const auto& tolerance : kTolerances) {
      INFO(c10::toString(tolerance.dtype) << ": " << tolerance.why);
      const auto wide = at::TensorOptions(at::kDouble);
      const auto x = at::randn({m, k}, wide).to(tolerance.dtype),
                 w = at::randn({n, k}, wide).to(tolerance.dtype);
      const auto y = at::randn({m, n}, wide).to(tolerance.dtype);
      const auto xd = x.to(at::kDouble), wd = w.to(at::kDouble), yd = y.to(at::kDouble);
      CHECK(relative_distance(matmul_nt(x, w), at::mm(xd, wd.t())) < tolerance.forward);
      CHECK(relative_distance(matmul_nn(y, w), at::mm(yd, wd)) < tolerance.forward);
      CHECK(relative_distance(matmul_tn(y, x), at::mm(yd.t(), xd)) < tolerance.forward);
      CHECK(matmul_nt(x, w).scalar_type() == tolerance.dtype);
    }
  }
}

TEST_CASE("a gradient kept in 16 bits takes its sums rounded once") {
  at::manual_seed(4);
  const auto x = at::randn({50, 8}).to(at::kBFloat16), y = at::randn({50, 6}).to(at::kBFloat16);
  auto wide = at::zeros({6, 8}, at::kFloat), narrow = at::zeros({6, 8}, at::kBFloat16);
  matmul_tn_add(wide, y, x, 0.5);
  matmul_tn_add(narrow, y, x, 0.5);
  CHECK(at::equal(narrow, wide.to(at::kBFloat16)));
}

TEST_CASE("low-rank terms and a bias go to their own columns, across panels") {
  at::manual_seed(2);
  const std::int64_t m = 9, k = 700, n = 900, r = 4;
  for (const auto choice : {HalfProducts::kNative, HalfProducts::kWidened}) {
    const Forced forced(choice);
    for (const auto dtype : {at::kFloat, at::kBFloat16}) {
      const auto random = [&](at::IntArrayRef sizes) { return at::randn(sizes).to(dtype); };
      const auto x = random({m, k}), w = random({n, k}), bias = random({n}), left = random({m, 2 * r});
      const auto b1 = random({500, r}), b2 = random({100, r}), a = random({r, k}), y = random({m, n});
      auto expected = at::mm(x.to(at::kDouble), w.to(at::kDouble).t()) + bias.to(at::kDouble);
      const auto wide_left = left.to(at::kDouble);
      expected.slice(1, 100, 600).add_(at::mm(wide_left.slice(1, 0, r), b1.to(at::kDouble).t()));
      expected.slice(1, 800, 900).add_(at::mm(wide_left.slice(1, r), b2.to(at::kDouble).t()));
      auto out = at::empty({m, n}, x.options());
      matmul_nt_out(out, x, w, {{left.slice(1, 0, r), b1, 100}, {left.slice(1, r), b2, 800}}, bias);
      const double tolerance =
          dtype == at::kFloat ? 3e-6 : 8e-3;  // fp32 sums; up to three roundings to 8 bits
      CHECK(relative_distance(out, expected) < tolerance);
      auto dx = at::empty({m, k}, x.options());
      matmul_nn_out(dx, y, w, {{left.slice(1, 0, r), a, 0}});
      const auto expected_dx =
          at::mm(y.to(at::kDouble), w.to(at::kDouble)) + at::mm(wide_left.slice(1, 0, r), a.to(at::kDouble));
      CHECK(relative_distance(dx, expected_dx) < tolerance);
    }
  }
}

TEST_CASE("matmul_tn_add accumulates in fp32 what strided operands give") {
  at::manual_seed(3);
  for (const auto choice : {HalfProducts::kNative, HalfProducts::kWidened}) {
    const Forced forced(choice);
    for (const auto dtype : {at::kFloat, at::kBFloat16, at::kHalf}) {
      const auto y = at::randn({50, 30}).to(dtype).slice(1, 5, 25),
                 x = at::randn({50, 40}).to(dtype).slice(1, 8, 40);
      auto out = at::ones({20, 32});
      matmul_tn_add(out, y, x, 0.5);
      const auto expected = 1 + 0.5 * at::mm(y.to(at::kDouble).t(), x.to(at::kDouble));
      CHECK(relative_distance(out, expected) < 3e-6);
    }
  }
}

TEST_CASE("bf16 is multiplied natively exactly where that is asked for") {
  const at::Device cpu(at::kCPU);
  CHECK(multiplies_natively(at::kFloat, cpu));
  CHECK(multiplies_natively(at::kBFloat16, at::Device(at::kCUDA, 0)));
  {
    const Forced forced(HalfProducts::kWidened);
    CHECK_FALSE(multiplies_natively(at::kBFloat16, cpu));
    CHECK(product_type(at::ones({1, 1}, at::kBFloat16)) == at::kFloat);
  }
  const Forced forced(HalfProducts::kNative);
  CHECK(matmul_operand(at::ones({1, 1}, at::kBFloat16)).scalar_type() == at::kBFloat16);
}
