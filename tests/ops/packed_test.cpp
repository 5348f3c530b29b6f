#include "ops/matmul/packed.h"

#include <ATen/ATen.h>
#include <ATen/Parallel.h>

#include <algorithm>
#include <cmath>

#include "ops/matmul/matmul.h"
#include "support/catch.h"

using namespace lorikeet::ops;

namespace {

// Sums of up to 9,001 products in fp32; rounded once to 8 bits, by 2^-8 of a value just above a power of two.
double tolerance(const at::Tensor& out) { return out.scalar_type() == at::kBFloat16 ? 4e-3 : 3e-6; }

// The largest difference over the largest element, or over a sum's expected size where that is larger: a few
// sums may all be near zero.
double distance(const at::Tensor& out, const at::Tensor& expected, std::int64_t inner) {
  const auto largest = [](const at::Tensor& of) { return of.abs().max().item<double>(); };
  return largest(out.to(at::kDouble) - expected) /
         std::max(largest(expected), std::sqrt(static_cast<double>(inner)));
}

at::Tensor random(at::IntArrayRef sizes, at::ScalarType dtype) {
  return at::randn(sizes, at::kDouble).to(dtype);
}

at::Tensor product(const at::Tensor& left, const at::Tensor& right) {
  return at::mm(left.to(at::kDouble), right.to(at::kDouble));
}

constexpr tiles::TileShape kShapes[] = {tiles::kNarrow, tiles::kWide};

}  // namespace

TEST_CASE("packed products agree with fp64, whatever the shape, the order in memory and the dtype") {
  at::manual_seed(11);
  const auto m = GENERATE(1, 5, 13, 97, 250);
  const auto k = GENERATE(1, 7, 64, 700, 1500, 9001);
  const auto n = GENERATE(1, 15, 33, 600, 1100);
  if (m * k * n > 60'000'000 || (k > 4096 && m + n > 800)) return;
  const auto left_dtype = GENERATE(at::kBFloat16, at::kFloat);
  const auto right_dtype = left_dtype == at::kFloat ? at::kBFloat16
                           : (m + n) % 2 == 0       ? at::kFloat
                                                    : at::kBFloat16;
  for (const tiles::TileShape shape : kShapes) {
    for (const bool turned : {false, true}) {
      INFO(m << " x " << k << " x " << n << " of " << c10::toString(left_dtype) << " and "
             << c10::toString(right_dtype) << ", transposed " << turned << ", tiles of " << shape.rows);
      const auto left = turned ? random({k, m}, left_dtype).t() : random({m, k}, left_dtype);
      const auto right = turned ? random({n, k}, right_dtype).t() : random({k, n}, right_dtype);
      for (const auto dtype : {at::kBFloat16, at::kFloat}) {
        auto out = at::full({m, n}, NAN, dtype);
        multiply_packed(out, left, right, {}, {}, std::nullopt, shape);
        CHECK(distance(out, product(left, right), k) < tolerance(out));
      }
    }
  }
}

TEST_CASE("packed products read and write parts of larger matrices, and nothing beside them") {
  at::manual_seed(12);
  for (const tiles::TileShape shape : kShapes) {
    const auto left = random({40, 90}, at::kBFloat16).slice(1, 3, 73),
               right = random({70, 60}, at::kBFloat16).slice(1, 5, 50);
    auto whole = at::full({40, 80}, 7.0F);
    auto out = whole.slice(1, 20, 65);
    multiply_packed(out, left, right, {}, {}, std::nullopt, shape);
    CHECK(distance(out, product(left, right), 70) < tolerance(out));
    CHECK(at::equal(whole.slice(1, 0, 20), at::full({40, 20}, 7.0F)));
    CHECK(at::equal(whole.slice(1, 65), at::full({40, 15}, 7.0F)));
    // Neither stride is 1.
    const auto wide = random({40, 140}, at::kFloat).slice(1, 0, 140, 2);
    auto second = at::empty({40, 45}, at::kFloat);
    multiply_packed(second, wide, right, {}, {}, std::nullopt, shape);
    CHECK(distance(second, product(wide, right), 70) < tolerance(second));
  }
}

TEST_CASE("packed products add terms to their columns wherever these begin and end, and a bias") {
  at::manual_seed(13);
  const std::int64_t m = 31, k = 130, n = 1200;
  const auto begin = GENERATE(0, 1, 15, 16, 31, 500, 1023, 1030);
  const auto width = GENERATE(1, 16, 40, 170);
  const auto rank = GENERATE(1, 9, 300);
  const auto left = random({m, k}, at::kBFloat16), right = random({n, k}, at::kBFloat16).t();
  const auto bias = random({n}, at::kFloat);
  const auto low = random({m, 2 * rank}, at::kFloat);
  const auto b = random({width, rank}, at::kBFloat16), whole = random({rank, n}, at::kFloat);
  for (const tiles::TileShape shape : kShapes) {
    INFO(rank << " ranks, " << width << " columns from " << begin << ", tiles of " << shape.rows);
    auto expected = product(left, right) + bias.to(at::kDouble);
    expected.slice(1, begin, begin + width).add_(product(low.slice(1, 0, rank), b.t()), 0.5);
    expected.add_(product(low.slice(1, rank), whole), -2);
    auto out = at::full({m, n}, NAN);
    multiply_packed(out, left, right,
                    {{low.slice(1, 0, rank), b.t(), begin, 0.5}, {low.slice(1, rank), whole, 0, -2}}, bias,
                    std::nullopt, shape);
    CHECK(distance(out, expected, k) < tolerance(out));
  }
}

TEST_CASE("packed products add to what is there where they are asked to, and sum nothing to zero") {
  at::manual_seed(14);
  for (const tiles::TileShape shape : kShapes) {
    const auto left = random({600, 20}, at::kBFloat16), right = random({600, 70}, at::kBFloat16);
    auto out = at::ones({20, 70});
    multiply_packed(out, left.t(), right, {}, {}, 0.25, shape);
    CHECK(distance(out, 1 + 0.25 * product(left.t(), right), 600) < tolerance(out));
    auto empty = at::full({3, 4}, NAN);
    multiply_packed(empty, at::empty({3, 0}, at::kBFloat16), at::empty({0, 4}, at::kBFloat16), {}, {},
                    std::nullopt, shape);
    CHECK(at::equal(empty, at::zeros({3, 4})));
  }
}

TEST_CASE("a row of a packed product is the same to the bit with other rows and other threads") {
  at::manual_seed(15);
  const auto left = random({300, 900}, at::kBFloat16), right = random({900, 700}, at::kBFloat16);
  const auto low = random({300, 8}, at::kFloat), a = random({8, 700}, at::kBFloat16);
  const auto rows = [&](std::int64_t begin, std::int64_t end) {
    auto out = at::empty({end - begin, 700});
    multiply_packed(out, left.slice(0, begin, end), right, {{low.slice(0, begin, end), a}});
    return out;
  };
  const auto all = rows(0, 300);
  CHECK(at::equal(rows(100, 171), all.slice(0, 100, 171)));
  CHECK(at::equal(rows(299, 300), all.slice(0, 299)));
  const int before = at::get_num_threads();
  for (const int threads : {1, 3}) {
    at::set_num_threads(threads);
    CHECK(at::equal(rows(0, 300), all));
  }
  at::set_num_threads(before);
}

TEST_CASE("what is multiplied while it is widened needs no copy, and is kept in fp32") {
  set_half_products(HalfProducts::kWidened);
  const auto x = at::ones({2, 3}, at::kBFloat16);
  CHECK(product_type(x) == at::kFloat);
  CHECK(matmul_operand(x).is_same(x) == packed_products());
  CHECK(matmul_operand(x.to(at::kHalf)).scalar_type() == at::kFloat);
  set_half_products(HalfProducts::kNative);
  CHECK(product_type(x) == at::kBFloat16);
  set_half_products(HalfProducts::kByFeature);
  CHECK(product_type(x.to(at::kDouble)) == at::kDouble);
}
