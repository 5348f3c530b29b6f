#include <ATen/ATen.h>

#include "ops/forced_products.h"
#include "ops/matmul/matmul.h"
#include "support/catch.h"
#include "support/tolerance.h"

using namespace lorikeet::ops;
using lorikeet::test::Forced;
using lorikeet::test::relative_distance;

namespace {

at::Tensor random(at::IntArrayRef sizes, at::ScalarType dtype) {
  return at::randn(sizes, at::kDouble).to(dtype);
}

// Gives out the rows of `weight`; counts how often, and remembers the most at once.
struct Decoder {
  at::Tensor weight;
  std::int64_t calls = 0, most = 0;

  RowSource source() {
    return {.rows = weight.size(0),
            .cols = weight.size(1),
            .fill = [this](std::int64_t begin, std::int64_t end, const at::Tensor& panel) {
              ++calls;
              most = std::max(most, end - begin);
              panel.copy_(weight.slice(0, begin, end));
            }};
  }
};

double wide_product_distance(const at::Tensor& out, const at::Tensor& expected) {
  return relative_distance(out.to(at::kDouble), expected);
}

}  // namespace

TEST_CASE("products with a weight that is decoded in panels equal those with the dense one") {
  at::manual_seed(21);
  const Forced forced(HalfProducts::kWidened);
  const std::int64_t m = 9, k = 2100, r = 4;
  const std::int64_t n = GENERATE(0, 1, 512, 1100);  // bf16 is decoded 512 rows at a time
  for (const auto dtype : {at::kBFloat16, at::kHalf, at::kFloat}) {
    INFO(c10::toString(dtype) << ", " << n << " rows");
    // One rounding of the result, to 8 or 11 bits.
    const double limit = dtype == at::kBFloat16 ? 4e-3 : dtype == at::kHalf ? 5e-4 : 3e-6;
    Decoder decoder{random({n, k}, dtype)};
    const auto wide = decoder.weight.to(at::kDouble);
    const auto x = random({m, k}, dtype), y = random({m, n}, dtype), bias = random({n}, dtype);
    const auto low = random({m, r}, at::kFloat), a = random({r, k}, dtype);

    // A term that begins in one panel and ends in another, and one that all columns have.
    std::vector<LowRankTerm> terms{{low, random({n, r}, dtype), 0, -0.5}};
    auto expected = at::mm(x.to(at::kDouble), wide.t()) + bias.to(at::kDouble) -
                    0.5 * at::mm(low.to(at::kDouble), terms[0].right.to(at::kDouble).t());
    if (n > 600) {
      terms.push_back({low, random({200, r}, dtype), 400, 2});
      expected.slice(1, 400, 600).add_(at::mm(low.to(at::kDouble), terms[1].right.to(at::kDouble).t()), 2);
    }
    auto out = at::full({m, n}, NAN, dtype);
    matmul_nt_out(out, x, decoder.source(), terms, bias);
    if (n > 0) CHECK(wide_product_distance(out, expected) < limit);
    if (n == 1100) CHECK(decoder.calls >= 3);

    const auto expected_nn =
        at::mm(y.to(at::kDouble), wide) + 1.5 * at::mm(low.to(at::kDouble), a.to(at::kDouble));
    for (const auto result : {dtype, at::kFloat}) {
      auto dx = at::full({m, k}, NAN, result);
      matmul_nn_out(dx, y, decoder.source(), {{low, a, 0, 1.5}});
      CHECK(wide_product_distance(dx, expected_nn) < limit);
    }
    if (n == 1100) CHECK(decoder.most <= 512);
  }
}
