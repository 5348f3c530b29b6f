#include "peft/base_factors.h"

#include <ATen/ATen.h>
#include <ATen/CPUGeneratorImpl.h>

#include "support/catch.h"
#include "support/toy_lora.h"

using namespace lorikeet;
using namespace lorikeet::peft;
using test::relative_error;

namespace {

// A matrix whose singular values fall by a factor from each to the next.
at::Tensor matrix(std::int64_t rows, std::int64_t cols) {
  auto generator = at::make_generator<at::CPUGeneratorImpl>(3);
  const auto factors =
      at::linalg_svd(at::randn({rows, cols}, generator, at::TensorOptions(at::kFloat)), false);
  const auto values = at::pow(0.7, at::arange(std::min(rows, cols), at::TensorOptions(at::kFloat)));
  return at::mm(std::get<0>(factors) * values, std::get<2>(factors));
}

at::Tensor product(const BaseFactors& factors) { return at::mm(factors.b, factors.a); }

}  // namespace

TEST_CASE("PiSSA's factors are the best approximation of their rank, half of it in either") {
  for (const auto& [rows, cols] : {std::pair{30, 20}, std::pair{20, 30}}) {
    const at::Tensor weight = matrix(rows, cols);
    for (const std::int64_t rank : {1, 4, 20}) {
      CAPTURE(rows, rank);
      const BaseFactors factors = pissa_factors(weight, rank, 2.5, std::nullopt, PhiloxStream(1, "w"));
      CHECK(factors.a.sizes() == at::IntArrayRef({rank, cols}));
      CHECK(factors.b.sizes() == at::IntArrayRef({rows, rank}));
      // What is left has the norm of the singular values left out (Eckart and Young).
      const double left = (weight - 2.5 * product(factors)).norm().item<double>();
      const auto rest =
          at::pow(0.7, at::arange(rank, 20, at::TensorOptions(at::kDouble))).norm().item<double>();
      CHECK(left == Approx(rest).margin(1e-5));
      const at::Tensor a = factors.a.norm(2, 1), b = factors.b.norm(2, 0);
      CHECK(relative_error(a, b) < 1e-4);
    }
  }
}

TEST_CASE("subspace iteration comes near the exact factors, the more so with more steps") {
  const at::Tensor weight = matrix(60, 40);
  const at::Tensor exact = product(pissa_factors(weight, 4, 1, std::nullopt, PhiloxStream(1, "w")));
  const auto error = [&](std::int64_t iterations) {
    return relative_error(product(pissa_factors(weight, 4, 1, iterations, PhiloxStream(1, "w"))), exact);
  };
  CHECK(error(0) > 0.05);
  CHECK(error(4) < error(0) / 5);
  CHECK(error(16) < 1e-3);
  CHECK(at::equal(pissa_factors(weight, 4, 1, 2, PhiloxStream(1, "w")).a,
                  pissa_factors(weight, 4, 1, 2, PhiloxStream(1, "w")).a));
}

TEST_CASE("OLoRA's factors are the first of Q and R") {
  const at::Tensor weight = matrix(30, 20);
  const BaseFactors factors = olora_factors(weight, 3);
  CHECK(relative_error(at::mm(factors.b.t(), factors.b), at::eye(3)) < 1e-5);
  CHECK(relative_error(product(olora_factors(weight, 20)), weight) < 1e-5);
  CHECK(relative_error(product(factors), at::mm(factors.b, at::mm(factors.b.t(), weight))) < 1e-5);
  CHECK(factors.a.tril(-1).abs().max().item<double>() < 1e-5);
}
