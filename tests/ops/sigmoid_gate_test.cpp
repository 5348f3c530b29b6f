#include "ops/sigmoid_gate/sigmoid_gate.h"

#include <ATen/ATen.h>
#include <ATen/Parallel.h>

#include <cmath>

#include "ops/distance.h"
#include "ops/dry_run.h"
#include "ops/gated_pair.h"
#include "support/error_text.h"
#include "support/reference_ops.h"

using namespace lorikeet::ops;
using namespace lorikeet::test;
using Catch::Contains;

namespace {

const GatedOperator kGate{sigmoid_gate, sigmoid_gate_backward_};

at::Tensor made(at::IntArrayRef sizes, std::uint64_t seed, at::ScalarType dtype) {
  return leaf(sizes, seed).detach().to(dtype);
}

// The result, both gradients and the result once more, on so many threads.
std::vector<at::Tensor> run(const at::Tensor& x, const at::Tensor& gate, const at::Tensor& dy, int threads) {
  const int before = at::get_num_threads();
  at::set_num_threads(threads);
  at::Tensor dx = dy.clone(), dgate = at::empty_like(x), again;
  const at::Tensor y = sigmoid_gate(x, gate);
  sigmoid_gate_backward_(dx, x, gate, dgate, &again);
  at::set_num_threads(before);
  return {y, dx, dgate, again};
}

}  // namespace

TEST_CASE("the sigmoid gate multiplies by 1 / (1 + e^-gate): numbers by hand") {
  // sigmoid(ln 3) = 3/4, its derivative 3/16; sigmoid(-ln 3) = 1/4.
  const double third = std::log(3.0);
  const at::Tensor x = at::tensor({8.0, -4.0, 5.0}).view({1, 3}),
                   gate = at::tensor({third, -third, 0.0}).view({1, 3});
  const at::Tensor y = at::tensor({6.0, -1.0, 2.5}).view({1, 3});
  const at::Tensor dy = at::tensor({2.0, 4.0, 1.0}).view({1, 3});
  const at::Tensor dx = at::tensor({1.5, 1.0, 0.5}).view({1, 3});
  const at::Tensor d_gate = at::tensor({3.0, -3.0, 1.25}).view({1, 3});
  for (const auto dtype : {at::kDouble, at::kFloat}) {
    const double tolerance = dtype == at::kDouble ? 1e-15 : 2e-7;
    const at::Tensor gradient = dy.to(dtype).clone(), dgate = at::empty({1, 3}, dtype);
    CHECK(relative_distance(sigmoid_gate(x.to(dtype), gate.to(dtype)), y) < tolerance);
    sigmoid_gate_backward_(gradient, x.to(dtype), gate.to(dtype), dgate);
    CHECK(relative_distance(gradient, dx) < tolerance);
    CHECK(relative_distance(dgate, d_gate) < tolerance);
  }
}

TEST_CASE("the sigmoid gate's reference has the gradients of finite differences") {
  CHECK(gradcheck([](const auto& in) { return reference::sigmoid_gate(in[0], in[1]); },
                  {leaf({5, 12}, 1), leaf({5, 12}, 2)})
            .worst < 1e-8);
}

TEST_CASE("the sigmoid gate agrees with its reference in every dtype, forward and backward") {
  for (const std::int64_t width : {1, 7, 64, 515}) {
    for (const double size : {1.0, 30.0}) {
      CAPTURE(width, size);
      check_all_dtypes([](const auto& rows) { return as_autograd(rows, gated_pair(kGate)); },
                       of_rows(reference::sigmoid_gate), leaf({33, 2 * width}, 3) * size);
    }
  }
  const at::Tensor x = leaf({9, 64}, 4).detach(), gate = leaf({9, 64}, 5).detach();
  const at::Tensor right = reference::sigmoid_gate(x, gate);
  CHECK(relative_distance(x * at::silu(gate), right) > 0.1);
  CHECK(relative_distance(reference::sigmoid_gate(gate, x), right) > 0.1);
}

TEST_CASE("the sigmoid gate closes and opens at gates without bound, and NaN stays NaN") {
  const float inf = INFINITY;
  const at::Tensor gate = at::tensor({-inf, -200.0F, 200.0F, inf, NAN}).view({1, 5});
  const at::Tensor x = at::full({1, 5}, 3.0F), expected = at::tensor({0.0F, 0.0F, 3.0F, 3.0F}).view({1, 4});
  for (const auto dtype : {at::kFloat, at::kBFloat16}) {
    const at::Tensor y = sigmoid_gate(x.to(dtype), gate.to(dtype)).to(at::kFloat);
    CHECK(at::allclose(y.narrow(1, 0, 4), expected, 0, 1e-30));
    CHECK(y[0][4].isnan().item<bool>());
  }
}

TEST_CASE("the sigmoid gate's rows don't depend on threads or on the rows beside them") {
  for (const auto dtype : {at::kFloat, at::kBFloat16}) {
    const at::Tensor x = made({67, 131}, 6, dtype), gate = made({67, 131}, 7, dtype),
                     dy = made({67, 131}, 8, dtype);
    const auto whole = run(x, gate, dy, 1), threaded = run(x, gate, dy, 3);
    const auto part = run(x.slice(0, 20, 61), gate.slice(0, 20, 61), dy.slice(0, 20, 61), 2);
    for (std::size_t i = 0; i < whole.size(); ++i) {
      CHECK(at::equal(threaded[i], whole[i]));
      CHECK(at::equal(part[i], whole[i].slice(0, 20, 61)));
    }
    CHECK(sigmoid_gate(x.slice(0, 0, 0), gate.slice(0, 0, 0)).sizes() == at::IntArrayRef({0, 131}));
  }
}

TEST_CASE("a gate's gradient may be written over the gate") {
  for (const auto dtype : {at::kFloat, at::kBFloat16}) {
    const at::Tensor x = made({9, 70}, 9, dtype), gate = made({9, 70}, 10, dtype),
                     dy = made({9, 70}, 11, dtype);
    const auto apart = run(x, gate, dy, 1);
    const at::Tensor dx = dy.clone(), over = gate.clone();
    sigmoid_gate_backward_(dx, x, over, over);
    CHECK(at::equal(over, apart[2]));
    CHECK(at::equal(dx, apart[1]));
  }
}

TEST_CASE("the sigmoid gate's kernels make no tensor but the result, on a CPU and on a GPU") {
  for (const auto device : {at::kCPU, at::kCUDA}) {
    const at::TensorOptions options = at::TensorOptions(at::kMeta).dtype(at::kBFloat16);
    const at::Tensor x = at::empty({64, 256}, options), gate = at::empty({64, 512}, options).slice(1, 256);
    const DryRun run({.device = device});
    const at::Tensor y = sigmoid_gate(x, gate);
    CHECK(run.peak().total() == 64 * 256 * 2);
    at::Tensor again;
    sigmoid_gate_backward_(y, x, gate, gate, &again);
    CHECK(run.peak().total() == 2 * 64 * 256 * 2);
    const ReferenceOps references;
    (void)sigmoid_gate(x, gate);
    CHECK(run.peak().total() > 3 * 64 * 256 * 2);
  }
}

TEST_CASE("gates whose elements aren't dense go through the reference") {
  const at::Tensor x = made({5, 8}, 12, at::kFloat), gate = made({8, 5}, 13, at::kFloat).t();
  const at::Tensor dy = made({5, 8}, 14, at::kFloat), columns = at::empty({8, 5}).t();
  const auto expected = run(x, gate.contiguous(), dy, 1);
  const at::Tensor dx = dy.clone();
  CHECK(relative_distance(sigmoid_gate(x, gate), expected[0]) < 1e-6);
  sigmoid_gate_backward_(dx, x, gate, columns);
  CHECK(relative_distance(dx, expected[1]) < 1e-6);
  CHECK(relative_distance(columns, expected[2]) < 1e-6);
}

TEST_CASE("the sigmoid gate names what doesn't fit") {
  const at::Tensor x = at::zeros({3, 8});
  CHECK_THAT(error_text([&] { sigmoid_gate(at::zeros({8}), x); }), Contains("a dense floating matrix"));
  CHECK_THAT(error_text([&] { sigmoid_gate(at::zeros({8, 3}).t(), x); }),
             Contains("a dense floating matrix"));
  CHECK_THAT(error_text([&] { sigmoid_gate(x, at::zeros({3, 9})); }),
             Contains("a gate of the input's shape and type"));
  CHECK_THAT(error_text([&] { sigmoid_gate(x, x.to(at::kDouble)); }),
             Contains("a gate of the input's shape and type"));
  const at::Tensor d = at::zeros({3, 8});
  CHECK_THAT(error_text([&] { sigmoid_gate_backward_(at::zeros({8, 3}).t(), x, x, d); }),
             Contains("a dense gradient of the result"));
  CHECK_THAT(error_text([&] { sigmoid_gate_backward_(d.to(at::kBFloat16), x, x, d); }),
             Contains("a dense gradient of the result, of its type"));
  CHECK_THAT(error_text([&] { sigmoid_gate_backward_(d, x, x, at::zeros({3, 9})); }),
             Contains("a matrix for the gate's gradient"));
}
