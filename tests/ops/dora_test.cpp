#include "ops/lora/dora.h"

#include <ATen/ATen.h>
#include <torch/csrc/autograd/autograd.h>

#include "base/error.h"
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

constexpr std::int64_t kTokens = 37, kIn = 24, kOut = 300;  // more columns than a block of the CPU kernel has

const Tolerance kTolerances[] = {
    {at::kDouble, 1e-14, 1e-13, "the same fp64 arithmetic in another order"},
    {at::kFloat, 3e-7, 2e-6, "one product and one sum; sums over 37 tokens"},
    {at::kBFloat16, 4.1e-3, 4.1e-3, "one rounding of the result to 8 bits"},
    {at::kHalf, 5.1e-4, 5.1e-4, "one rounding of the result to 11 bits"},
};

at::ScalarType wide(at::ScalarType dtype) { return dtype == at::kDouble ? at::kDouble : at::kFloat; }

at::Tensor random(at::IntArrayRef sizes, std::uint64_t seed, at::ScalarType dtype = at::kDouble) {
  return leaf(sizes, seed).detach().to(at::kBFloat16).to(dtype);
}

// Two projections with gaps around them, and the norms of their rows by the definition.
struct Norms {
  at::Tensor weight;
  std::vector<LoraProjection> projections;

  explicit Norms(at::ScalarType dtype) : weight(random({40, kIn}, 1, dtype)) {
    add(5, 17, 4, 2.0, 2);
    add(20, 36, 2, -0.7, 4);
  }
  void add(std::int64_t begin, std::int64_t end, std::int64_t rank, double scale, std::uint64_t seed) {
    const auto dtype = weight.scalar_type();
    projections.push_back({begin,
                           end,
                           random({rank, kIn}, seed, dtype),
                           random({end - begin, rank}, seed + 1, dtype),
                           {},
                           {},
                           scale});
  }
  at::Tensor expected() const {
    std::vector<at::Tensor> norms;
    for (const auto& p : projections) {
      const auto sum = weight.slice(0, p.out_begin, p.out_end).to(at::kDouble) +
                       p.scale * at::mm(p.b.to(at::kDouble), p.a.to(at::kDouble));
      norms.push_back(at::norm(sum, 2, {1}));
    }
    return at::cat(norms);
  }
};

}  // namespace

TEST_CASE("the norms of a table's columns are those of W + scale * B A") {
  for (const auto& [dtype, limit] : {std::pair{at::kDouble, 1e-14}, std::pair{at::kFloat, 1e-6},
                                     std::pair{at::kBFloat16, 1e-6}}) {  // operands are exact
    CAPTURE(dtype);
    constexpr std::int64_t kRows = 50000;  // more than are taken at once
    const at::Tensor table = random({kRows, kIn}, 1, dtype);
    LoraProjection update{0, kRows, random({3, kIn}, 2, dtype), random({kRows, 3}, 3, dtype), {}, {}, -0.7};
    const auto exact = [](const at::Tensor& t) { return t.to(at::kDouble); };
    const at::Tensor expected =
        at::norm(exact(table) + update.scale * at::mm(exact(update.b), exact(update.a)), 2, {0});
    const at::Tensor norms = dora_column_norms(frozen_matrix(table), update);
    CHECK(norms.scalar_type() == wide(dtype));
    CHECK(relative_distance(norms, expected) < limit);
    update.scale = 0.7;
    CHECK(relative_distance(dora_column_norms(frozen_matrix(table), update), expected) > 1e-3);
  }
}

TEST_CASE("the norms of W + scale * B A are those of its rows") {
  for (const auto& [dtype, limit] : {std::pair{at::kDouble, 1e-14}, std::pair{at::kFloat, 1e-6},
                                     // Operands are exact; A W^T is rounded to 8 bits.
                                     std::pair{at::kBFloat16, 4e-3}}) {
    CAPTURE(dtype);
    Norms n(dtype);
    const auto norms = dora_norms(frozen_matrix(n.weight), n.projections);
    CHECK(norms.scalar_type() == wide(dtype));
    CHECK(relative_distance(norms, n.expected()) < limit);
    n.projections[1].scale = 0.7;
    CHECK(relative_distance(norms, n.expected()) > 0.1);
  }
}

TEST_CASE("norms from squares at hand are those of the weight that they are of") {
  Norms n(at::kFloat);
  const FrozenMatrix weight = frozen_matrix(n.weight);
  const at::Tensor squares = row_squares(weight, n.projections[0].a);
  CHECK(at::equal(dora_norms(weight, n.projections, squares), dora_norms(weight, n.projections)));
  CHECK(relative_distance(dora_norms(weight, n.projections, 1.2 * squares), n.expected()) > 1e-2);
}

TEST_CASE("norms of a weight that is larger than a chunk of scratch") {
  const auto weight = random({300, 9000}, 7, at::kFloat);
  const LoraProjection p{0, 300, random({2, 9000}, 8, at::kFloat), at::zeros({300, 2}), {}, {}, 1};
  CHECK(relative_distance(dora_norms(frozen_matrix(weight), {p}), at::norm(weight.to(at::kDouble), 2, {1})) <
        1e-6);
}

TEST_CASE("the norm of a row of zeros divides to zero, not to NaN") {
  const LoraProjection p{0, 2, random({1, 3}, 8, at::kFloat), at::zeros({2, 1}), {}, {}, 1};
  const auto norms = dora_norms(frozen_matrix(at::zeros({2, 3})), {p});
  CHECK((norms > 0).all().item<bool>());
  CHECK((at::zeros({2}) / norms == 0).all().item<bool>());
}

TEST_CASE("the reference of scaling columns has the gradients of finite differences") {
  const auto bias = random({6}, 3);
  const auto f = [&](const std::vector<at::Tensor>& in) {
    return reference::scale_columns(in[0], in[1], bias);
  };
  CHECK(gradcheck(f, {leaf({5, 6}, 1), leaf({6}, 2)}).worst < 1e-8);
}

TEST_CASE("columns are scaled, forward and backward, as the reference does in fp64") {
  for (const Tolerance& tolerance : kTolerances) {
    CAPTURE(tolerance.dtype, tolerance.why);
    const auto dtype = tolerance.dtype;
    const auto x = random({kTokens, kOut}, 11, dtype), dy = random({kTokens, kOut}, 12, dtype);
    const auto factors = random({kOut}, 13, wide(dtype)), bias = random({kOut}, 14, dtype);
    for (const bool with_bias : {false, true}) {
      const auto own_bias = with_bias ? bias : at::Tensor();
      const auto exact_x = x.to(at::kDouble).requires_grad_(true);
      const auto exact_factors = factors.to(at::kDouble).requires_grad_(true);
      const auto expected =
          reference::scale_columns(exact_x, exact_factors, with_bias ? bias.to(at::kDouble) : at::Tensor());
      const auto gradients =
          torch::autograd::grad({expected}, {exact_x, exact_factors}, {dy.to(at::kDouble)});
      const auto y = scale_columns(x, factors, own_bias);
      const auto back = scale_columns_backward(dy, x, factors);
      CHECK(y.scalar_type() == dtype);
      CHECK(back.factors.scalar_type() == wide(dtype));
      CHECK(relative_distance(y, expected) < tolerance.forward);
      CHECK(relative_distance(back.dx, gradients[0]) < tolerance.backward);
      // Sums are wide in every dtype.
      CHECK(relative_distance(back.factors, gradients[1]) < 2e-6);
      // The tolerance can fail: by a column's neighbour.
      CHECK(relative_distance(scale_columns(x, factors.roll(1), own_bias), expected) > tolerance.forward);
      CHECK(relative_distance(scale_columns_backward(dy, x.roll(1, 0), factors).factors, gradients[1]) >
            2e-6);
    }
  }
}

TEST_CASE("tensors that don't fit are errors") {
  const auto x = at::zeros({2, 3}), factors = at::ones({3});
  CHECK_THROWS_AS(scale_columns(x, at::ones({2}), {}), Error);
  CHECK_THROWS_AS(scale_columns(x, factors.to(at::kDouble), {}), Error);
  CHECK_THROWS_AS(scale_columns(x, factors, at::ones({2})), Error);
  CHECK_THROWS_AS(scale_columns_backward(at::zeros({2, 2}), x, factors), Error);
  CHECK_THROWS_AS(scale_columns_backward(x.to(at::kDouble), x, factors), Error);
}
