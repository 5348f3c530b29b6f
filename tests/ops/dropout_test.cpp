#include "ops/lora/dropout.h"

#include <ATen/ATen.h>

#include "base/error.h"
#include "base/philox.h"
#include "ops/lora/dropout_bits.h"
#include "support/catch.h"

using namespace lorikeet::ops;
using lorikeet::Error;
using lorikeet::Philox;

namespace {

LoraDropout dropout_of(double p, const at::Tensor& samples, const at::Tensor& positions) {
  return {p, 42, 7, 3, samples, positions};
}

at::Tensor positions_to(std::int64_t n) { return at::arange(n, at::kLong); }

}  // namespace

TEST_CASE("the mask's words are Philox's") {
  for (std::uint32_t i = 0; i < 50; ++i) {
    const auto words = dropout_philox(i, 2 * i, 3 * i + 1, ~i, 77 * i, i * i);
    const auto expected = Philox::words({i, 2 * i, 3 * i + 1, ~i}, {77 * i, i * i});
    for (std::size_t w = 0; w < 4; ++w) CHECK(words.v[w] == expected[w]);
  }
}

TEST_CASE("a row's mask depends on its sample and position, not on where it is packed") {
  const auto x = at::ones({30, 37});
  const auto samples = at::arange(30, at::kLong).div(10, "floor"),
             positions = at::arange(30, at::kLong).remainder(10);
  const auto whole = apply_dropout(x, dropout_of(0.3, samples, positions));
  const auto order = at::randperm(30, at::make_generator<at::CPUGeneratorImpl>(1), at::kLong);
  const auto mixed =
      apply_dropout(x, dropout_of(0.3, samples.index_select(0, order), positions.index_select(0, order)));
  CHECK(at::equal(mixed, whole.index_select(0, order)));
  CHECK_FALSE(at::equal(whole[0], whole[1]));
  CHECK_FALSE(at::equal(whole[0], whole[10]));
}

TEST_CASE("another seed, step, group, sample or position gives another mask") {
  const auto x = at::ones({1, 256});
  const auto zero = at::zeros({1}, at::kLong);
  const auto base = apply_dropout(x, {0.5, 1, 1, 1, zero, zero});
  CHECK(at::equal(base, apply_dropout(x, {0.5, 1, 1, 1, zero, zero})));
  const auto big = zero + (std::int64_t{1} << 40);
  for (const auto& other :
       {LoraDropout{0.5, 2, 1, 1, zero, zero}, LoraDropout{0.5, 1, 2, 1, zero, zero},
        LoraDropout{0.5, 1, 1, 2, zero, zero}, LoraDropout{0.5, 1, 1, 1, zero + 1, zero},
        LoraDropout{0.5, 1, 1, 1, zero, zero + 1}, LoraDropout{0.5, 1, 1, 1, big, zero}}) {
    // Two independent masks agree on half of 256 features, give or take 5 x 8.
    const auto equal = (apply_dropout(x, other) == base).sum().item<std::int64_t>();
    CHECK(equal > 88);
    CHECK(equal < 168);
  }
}

TEST_CASE("the share dropped is p and kept values grow by 1 / (1 - p)") {
  for (const double p : {0.05, 0.5, 0.9}) {
    const std::int64_t n = 200;
    const auto out =
        apply_dropout(at::ones({n, n}), dropout_of(p, at::zeros({n}, at::kLong), positions_to(n)));
    const auto dropped = (out == 0).sum().item<double>() / static_cast<double>(n * n);
    CHECK(std::abs(dropped - p) <
          5 * std::sqrt(p * (1 - p)) / static_cast<double>(n));  // five standard errors
    CHECK(out.max().item<double>() == Approx(1 / (1 - p)));
    CHECK(out.mean().item<double>() == Approx(1).margin(0.1));
  }
}

TEST_CASE("dropout keeps the dtype, takes strided input, and p = 0 changes nothing") {
  const auto ids = at::zeros({6}, at::kLong);
  const auto x = at::randn({6, 20}).slice(1, 3, 16);
  for (const auto dtype : {at::kFloat, at::kBFloat16, at::kHalf, at::kDouble}) {
    CHECK(at::equal(apply_dropout(x.to(dtype), dropout_of(0, ids, positions_to(6))), x.to(dtype)));
  }
  const auto dropout = dropout_of(0.4, ids, positions_to(6));
  CHECK(at::equal(apply_dropout(x, dropout), apply_dropout(x.contiguous(), dropout)));
}

TEST_CASE("dropout names what doesn't fit") {
  const auto x = at::ones({4, 4});
  CHECK_THROWS_AS(apply_dropout(x, dropout_of(1.0, positions_to(4), positions_to(4))), Error);
  CHECK_THROWS_AS(apply_dropout(x, dropout_of(-0.1, positions_to(4), positions_to(4))), Error);
  CHECK_THROWS_AS(apply_dropout(x, dropout_of(0.1, positions_to(3), positions_to(4))), Error);
  CHECK_THROWS_AS(apply_dropout(x, dropout_of(0.1, positions_to(4), positions_to(4).to(at::kInt))), Error);
}
