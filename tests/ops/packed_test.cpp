#include "ops/matmul/packed_products.h"

#include <ATen/ATen.h>
#include <ATen/Parallel.h>

#include <algorithm>
#include <cmath>

#include "ops/forced_products.h"
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

// Of pairs the form for CPUs without the instruction is what others run.
constexpr tiles::Kernel kKernels[] = {tiles::kNarrow, tiles::kWide, tiles::kPairs};

// The dtype of an operand: `dtype`, but for pairs.
at::ScalarType operand_type(const tiles::Kernel& kernel, at::ScalarType dtype) {
  return kernel.pairs ? at::kBFloat16 : dtype;
}

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
  for (const tiles::Kernel& kernel : kKernels) {
    for (const bool turned : {false, true}) {
      INFO(m << " x " << k << " x " << n << " of " << c10::toString(left_dtype) << " and "
             << c10::toString(right_dtype) << ", transposed " << turned << ", rows " << kernel.rows
             << ", pairs " << kernel.pairs);
      const auto of_left = operand_type(kernel, left_dtype), of_right = operand_type(kernel, right_dtype);
      const auto left = turned ? random({k, m}, of_left).t() : random({m, k}, of_left);
      const auto right = turned ? random({n, k}, of_right).t() : random({k, n}, of_right);
      for (const auto dtype : {at::kBFloat16, at::kFloat}) {
        auto out = at::full({m, n}, NAN, dtype);
        multiply_packed(out, left, right, {}, {}, std::nullopt, kernel);
        CHECK(distance(out, product(left, right), k) < tolerance(out));
      }
    }
  }
}

TEST_CASE("packed products read and write parts of larger matrices, and nothing beside them") {
  at::manual_seed(12);
  for (const tiles::Kernel& kernel : kKernels) {
    const auto left = random({40, 90}, at::kBFloat16).slice(1, 3, 73),
               right = random({70, 60}, at::kBFloat16).slice(1, 5, 50);
    auto whole = at::full({40, 80}, 7.0F);
    auto out = whole.slice(1, 20, 65);
    multiply_packed(out, left, right, {}, {}, std::nullopt, kernel);
    CHECK(distance(out, product(left, right), 70) < tolerance(out));
    CHECK(at::equal(whole.slice(1, 0, 20), at::full({40, 20}, 7.0F)));
    CHECK(at::equal(whole.slice(1, 65), at::full({40, 15}, 7.0F)));
    // Neither stride is 1.
    const auto wide = random({40, 140}, operand_type(kernel, at::kFloat)).slice(1, 0, 140, 2);
    auto second = at::empty({40, 45}, at::kFloat);
    multiply_packed(second, wide, right, {}, {}, std::nullopt, kernel);
    CHECK(distance(second, product(wide, right), 70) < tolerance(second));
  }
}

TEST_CASE("packed products add terms to their columns wherever these begin and end, and a bias") {
  at::manual_seed(13);
  // Packing the left operand writes behind itself where k is a whole number of groups.
  const std::int64_t m = 31, k = GENERATE(130, 144), n = 1200;
  const auto begin = GENERATE(0, 1, 15, 16, 31, 500, 1023, 1030);
  const auto width = GENERATE(1, 16, 40, 170);
  const auto rank = GENERATE(1, 9, 300);
  const auto left = random({m, k}, at::kBFloat16), right = random({n, k}, at::kBFloat16).t();
  const auto bias = random({n}, at::kFloat);
  const auto b = random({width, rank}, at::kBFloat16);
  for (const tiles::Kernel& kernel : kKernels) {
    INFO(rank << " ranks, " << width << " columns from " << begin << ", rows " << kernel.rows << ", pairs "
              << kernel.pairs);
    const auto low = random({m, 2 * rank}, operand_type(kernel, at::kFloat));
    const auto whole = random({rank, n}, operand_type(kernel, at::kFloat));
    auto expected = product(left, right) + bias.to(at::kDouble);
    expected.slice(1, begin, begin + width).add_(product(low.slice(1, 0, rank), b.t()), 0.5);
    expected.add_(product(low.slice(1, rank), whole), -2);
    auto out = at::full({m, n}, NAN);
    multiply_packed(out, left, right,
                    {{low.slice(1, 0, rank), b.t(), begin, 0.5}, {low.slice(1, rank), whole, 0, -2}}, bias,
                    std::nullopt, kernel);
    CHECK(distance(out, expected, k) < tolerance(out));
  }
}

TEST_CASE("packed products add to what is there where they are asked to, and sum nothing to zero") {
  at::manual_seed(14);
  for (const tiles::Kernel& kernel : kKernels) {
    const auto left = random({600, 20}, at::kBFloat16), right = random({600, 70}, at::kBFloat16);
    auto out = at::ones({20, 70});
    multiply_packed(out, left.t(), right, {}, {}, 0.25, kernel);
    CHECK(distance(out, 1 + 0.25 * product(left.t(), right), 600) < tolerance(out));
    auto empty = at::full({3, 4}, NAN);
    multiply_packed(empty, at::empty({3, 0}, at::kBFloat16), at::empty({0, 4}, at::kBFloat16), {}, {},
                    std::nullopt, kernel);
    CHECK(at::equal(empty, at::zeros({3, 4})));
  }
}

TEST_CASE("a row of a packed product is the same to the bit with other rows and other threads") {
  at::manual_seed(15);
  const tiles::Kernel kernel = GENERATE(tiles::kernel_of_cpu(), tiles::kPairs);
  const auto left = random({300, 900}, at::kBFloat16), right = random({900, 700}, at::kBFloat16);
  const auto low = random({300, 8}, operand_type(kernel, at::kFloat)), a = random({8, 700}, at::kBFloat16);
  const auto rows = [&](std::int64_t begin, std::int64_t end) {
    auto out = at::empty({end - begin, 700});
    multiply_packed(out, left.slice(0, begin, end), right, {{low.slice(0, begin, end), a}}, {}, std::nullopt,
                    kernel);
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

TEST_CASE("pairs are multiplied exactly and what is no number stays none") {
  // Sums of few products of small whole numbers are exact in fp32, and those up to 256 in bf16.
  const auto whole = [](at::IntArrayRef sizes) {
    return at::randint(-3, 4, sizes, at::kDouble).to(at::kBFloat16);
  };
  at::manual_seed(16);
  const auto left = whole({50, 27}), right = whole({27, 70});
  for (const auto dtype : {at::kBFloat16, at::kFloat}) {
    auto out = at::empty({50, 70}, dtype);
    multiply_packed(out, left, right, {}, {}, std::nullopt, tiles::kPairs);
    CHECK(at::equal(out.to(at::kDouble), product(left, right)));
    left[7][26] = NAN;
    multiply_packed(out, left, right, {}, {}, std::nullopt, tiles::kPairs);
    CHECK(out[7].isnan().all().item<bool>());
    CHECK_FALSE(out.slice(0, 8).isnan().any().item<bool>());
    left[7][26] = 1;
  }
}

TEST_CASE("native products of bf16 are those of pairs where the CPU has the instruction and no AMX") {
  at::manual_seed(17);
  const lorikeet::test::Forced forced(HalfProducts::kNative);
  const auto x = random({40, 70}, at::kBFloat16), w = random({90, 70}, at::kBFloat16);
  const auto low = random({40, 6}, at::kBFloat16), b = random({90, 6}, at::kBFloat16);
  auto out = at::empty({40, 90}, at::kBFloat16), expected = at::empty_like(out);
  CHECK_FALSE(packs_pairs(out, x.to(at::kFloat), w));
  CHECK_FALSE(packs_pairs(out, x, w, {{low.to(at::kFloat), b}}));
  if (!tiles::fast_pairs_on_cpu()) CHECK_FALSE(packs_pairs(out, x, w));
  if (!packs_pairs(out, x, w, {{low, b, 0, 0.3}})) {
    WARN("left out: on this CPU native products are libtorch's");
    return;
  }
  matmul_nt_out(out, x, w, {{low, b, 0, 0.3}});
  multiply_packed(expected, x, w.t(), {{low, b.t(), 0, 0.3}}, {}, std::nullopt, tiles::kPairs);
  CHECK(at::equal(out, expected));
  auto back = at::empty({40, 70}, at::kBFloat16), expected_back = at::empty_like(back);
  matmul_nn_out(back, out, w);
  multiply_packed(expected_back, out, w, {}, {}, std::nullopt, tiles::kPairs);
  CHECK(at::equal(back, expected_back));
  set_half_products(HalfProducts::kWidened);
  CHECK_FALSE(packs_pairs(out, x, w));
}

TEST_CASE("gradients of weights are the same whichever operand is the wider one") {
  at::manual_seed(18);
  const auto narrow = random({300, 16}, at::kBFloat16), wide = random({300, 75}, at::kBFloat16);
  auto out = at::ones({75, 16}), turned = at::ones({16, 75});
  matmul_tn_add(out, wide, narrow, 0.5);
  matmul_tn_add(turned, narrow, wide, 0.5);
  CHECK(distance(out, 1 + 0.5 * product(wide.t(), narrow), 300) < tolerance(out));
  CHECK(distance(turned, out.t(), 300) < tolerance(out));
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
