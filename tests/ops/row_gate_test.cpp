#include "ops/row_gate/row_gate.h"

#include <ATen/ATen.h>
#include <ATen/Parallel.h>

#include <cmath>

#include "ops/distance.h"
#include "ops/dry_run.h"
#include "ops/row_gate_pair.h"
#include "support/catch.h"
#include "support/error_text.h"
#include "support/gradcheck.h"
#include "support/reference_ops.h"

using namespace lorikeet::ops;
using namespace lorikeet::test;
using Catch::Contains;

namespace {

at::Tensor made(at::IntArrayRef sizes, std::uint64_t seed, at::ScalarType dtype) {
  return leaf(sizes, seed).detach().to(dtype);
}

}  // namespace

TEST_CASE("a row's gate multiplies the row by 1 / (1 + e^-gate): numbers by hand") {
  // sigmoid(ln 3) = 3/4, its derivative 3/16; sigmoid(-ln 3) = 1/4.
  const double third = std::log(3.0);
  const at::Tensor x = at::tensor({8.0, -4.0, 4.0, 12.0}).view({2, 2}), gate = at::tensor({third, -third});
  const at::Tensor gated = at::tensor({6.0, -3.0, 1.0, 3.0}).view({2, 2});
  const at::Tensor products = at::tensor({12.0, 8.0});  // of gated rows and a gradient's
  for (const auto dtype : {at::kDouble, at::kFloat}) {
    const double tolerance = dtype == at::kDouble ? 1e-15 : 2e-7;
    const at::Tensor g = gate.to(dtype).view({2, 1}), y = at::full({2, 2}, 10, dtype);
    CHECK(relative_distance(row_gate(x.to(dtype), g), gated) < tolerance);
    add_row_gate_(y, x.to(dtype), g);
    CHECK(relative_distance(y, gated + 10) < tolerance);
    CHECK(relative_distance(row_gate_backward(products.to(dtype), g), at::tensor({3.0, 6.0}).view({2, 1})) <
          tolerance);
  }
}

TEST_CASE("the row gate's reference has the gradients of finite differences") {
  CHECK(gradcheck([](const auto& in) { return reference::row_gate(in[0], in[1]); },
                  {leaf({5, 12}, 1), leaf({5, 1}, 2)})
            .worst < 1e-8);
}

TEST_CASE("the row gate agrees with its reference in every dtype, forward and backward") {
  for (const std::int64_t width : {1, 7, 64, 515}) {
    for (const double size : {1.0, 20.0}) {
      CAPTURE(width, size);
      // The gate's gradient is that of products of rounded rows.
      check_all_dtypes([](const auto& rows) { return as_autograd(rows, row_gate_pair); }, row_gate_reference,
                       leaf({33, 2 * width + 1}, 3) * size, /*roundings=*/2);
    }
  }
  const at::Tensor x = made({9, 64}, 4, at::kDouble), gate = made({9, 1}, 5, at::kDouble);
  const at::Tensor right = reference::row_gate(x, gate);
  CHECK(relative_distance(x * gate.flip(0).sigmoid(), right) > 0.1);
  CHECK(relative_distance(x, right) > 0.1);
}

TEST_CASE("row gates close and open at gates without bound, and NaN stays NaN") {
  const float inf = INFINITY;
  const at::Tensor gate = at::tensor({-inf, -200.0F, 200.0F, inf, NAN}).view({5, 1});
  const at::Tensor expected = at::tensor({0.0F, 0.0F, 3.0F, 3.0F}).view({4, 1}).expand({4, 20});
  for (const auto dtype : {at::kFloat, at::kBFloat16}) {
    const at::Tensor y = row_gate(at::full({5, 20}, 3, dtype), gate.to(dtype)).to(at::kFloat);
    CHECK(at::allclose(y.narrow(0, 0, 4), expected, 0, 1e-30));
    CHECK(y[4].isnan().all().item<bool>());
  }
}

TEST_CASE("row gates don't depend on threads or on the rows beside them") {
  const int before = at::get_num_threads();
  for (const auto dtype : {at::kFloat, at::kBFloat16}) {
    const at::Tensor x = made({67, 131}, 6, dtype), gate = made({67, 1}, 7, dtype);
    const auto run = [&](std::int64_t begin, std::int64_t end, int threads) {
      at::set_num_threads(threads);
      const at::Tensor rows = x.slice(0, begin, end), gates = gate.slice(0, begin, end), y = rows.clone();
      add_row_gate_(y, rows, gates);
      return at::cat({row_gate(rows, gates), y}, 1);
    };
    const at::Tensor whole = run(0, 67, 1);
    CHECK(at::equal(run(0, 67, 3), whole));
    CHECK(at::equal(run(20, 61, 2), whole.slice(0, 20, 61)));
    CHECK(run(5, 5, 1).sizes() == at::IntArrayRef({0, 262}));
  }
  at::set_num_threads(before);
}

TEST_CASE("the row gate's kernels make no tensor but the result, on a CPU and on a GPU") {
  for (const auto device : {at::kCPU, at::kCUDA}) {
    const at::TensorOptions options = at::TensorOptions(at::kMeta).dtype(at::kBFloat16);
    const at::Tensor x = at::empty({64, 256}, options), gate = at::empty({64, 1}, options);
    const DryRun run({.device = device});
    const at::Tensor y = row_gate(x, gate);
    add_row_gate_(y, x, gate);
    CHECK(run.peak().total() == 64 * 256 * 2);
    const ReferenceOps references;
    (void)row_gate(x, gate);
    CHECK(run.peak().total() > 2 * 64 * 256 * 2);
  }
}

TEST_CASE("the row gate names what doesn't fit") {
  const at::Tensor x = at::zeros({3, 8}), gate = at::zeros({3, 1});
  CHECK_THAT(error_text([&] { row_gate(at::zeros({8}), gate); }), Contains("a dense floating matrix"));
  CHECK_THAT(error_text([&] { row_gate(at::zeros({8, 3}).t(), gate); }), Contains("a dense floating matrix"));
  const char* const of_gate = "a gate of one number for each of the input's rows, of its type";
  CHECK_THAT(error_text([&] { row_gate(x, at::zeros({4, 1})); }), Contains(of_gate));
  CHECK_THAT(error_text([&] { row_gate(x, at::zeros({3, 2})); }), Contains(of_gate));
  CHECK_THAT(error_text([&] { row_gate(x, gate.to(at::kDouble)); }), Contains(of_gate));
  CHECK_THAT(error_text([&] { add_row_gate_(at::zeros({3, 9}), x, gate); }),
             Contains("a dense sum of the input's shape and type"));
  CHECK_THAT(error_text([&] { add_row_gate_(at::zeros({8, 3}).t(), x, gate); }),
             Contains("a dense sum of the input's shape and type"));
  CHECK_THAT(error_text([&] { row_gate_backward(at::zeros({4}), gate); }),
             Contains("a product for each row"));
  CHECK_THAT(error_text([&] { row_gate_backward(at::zeros({3}, at::kDouble), gate); }),
             Contains("a product for each row, in the type of sums"));
}
