#include "ops/gated_norm/gated_norm.h"

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

constexpr double kEps = 1e-5;

GatedOperator with_weight(const at::Tensor& weight, double eps = kEps) {
  return {[=](const at::Tensor& x, const at::Tensor& z) { return gated_norm(x, z, weight, eps); },
          [=](const at::Tensor& dy, const at::Tensor& x, const at::Tensor& z, const at::Tensor& dz,
              at::Tensor* y) { gated_norm_backward_(dy, x, z, weight, eps, dz, y); }};
}

at::Tensor made(at::IntArrayRef sizes, std::uint64_t seed, at::ScalarType dtype) {
  return leaf(sizes, seed).detach().to(dtype);
}

// What every dtype holds exactly.
at::Tensor weight_of(std::int64_t head, std::uint64_t seed) { return made({head}, seed, at::kBFloat16); }

std::vector<at::Tensor> run(const at::Tensor& x, const at::Tensor& z, const at::Tensor& weight,
                            const at::Tensor& dy, int threads) {
  const int before = at::get_num_threads();
  at::set_num_threads(threads);
  at::Tensor dx = dy.clone(), dz = at::empty_like(x), again;
  const at::Tensor y = gated_norm(x, z, weight, kEps);
  gated_norm_backward_(dx, x, z, weight, kEps, dz, &again);
  at::set_num_threads(before);
  return {y, dx, dz, again};
}

}  // namespace

TEST_CASE("the gated norm is an RMS norm over each head times SiLU of the gate: numbers by hand") {
  // Heads (3, 4) and (0, 2): mean squares 12.5 and 2; with eps 3.5 and 2 they become 16 and 4.
  const double open = std::log(3.0);  // its sigmoid is 3/4
  const at::Tensor x = at::tensor({3.0, 4.0, 0.0, 2.0}).view({1, 4});
  const at::Tensor z = at::tensor({open, open, open, -open}).view({1, 4});
  const at::Tensor weight = at::tensor({2.0, 5.0});
  for (const auto dtype : {at::kDouble, at::kFloat}) {
    const double tolerance = dtype == at::kDouble ? 1e-15 : 3e-7;
    const at::Tensor first = gated_norm(x.narrow(1, 0, 2).contiguous().to(dtype), z.narrow(1, 0, 2).to(dtype),
                                        weight.to(dtype), 3.5);
    const at::Tensor both = gated_norm(x.to(dtype), z.to(dtype), weight.to(dtype), 2.0);
    const double gate = 0.75 * open, closed = -0.25 * open, rstd = 1 / std::sqrt(14.5);
    CHECK(relative_distance(first, at::tensor({2 * 0.75 * gate, 5.0 * gate}).view({1, 2})) < tolerance);
    CHECK(relative_distance(both,
                            at::tensor({6 * rstd * gate, 20 * rstd * gate, 0.0, 5.0 * closed}).view({1, 4})) <
          tolerance);
  }
}

TEST_CASE("the gated norm's reference has the gradients of finite differences") {
  const at::Tensor weight = weight_of(6, 1).to(at::kDouble);
  CHECK(gradcheck([&](const auto& in) { return reference::gated_norm(in[0], in[1], weight, kEps); },
                  {leaf({5, 18}, 2), leaf({5, 18}, 3)})
            .worst < 1e-7);
}

TEST_CASE("the gated norm agrees with its reference in every dtype, forward and backward") {
  struct Form {
    std::int64_t head, heads;
  };
  // Narrower than a vector, odd, whole vectors, the widest, and wider than the kernels take.
  for (const Form form :
       {Form{5, 3}, Form{16, 1}, Form{128, 4}, Form{131, 2}, Form{1024, 1}, Form{1030, 2}}) {
    for (const auto dtype : {at::kBFloat16, at::kFloat}) {
      const at::Tensor weight = weight_of(form.head, 4).to(dtype);
      for (const double size : {1.0, 20.0}) {
        CAPTURE(form.head, form.heads, size, c10::toString(dtype));
        check_all_dtypes([&](const auto& rows) { return as_autograd(rows, gated_pair(with_weight(weight))); },
                         of_rows([&](const auto& x, const auto& z) {
                           return reference::gated_norm(x, z, weight.to(at::kDouble), kEps);
                         }),
                         leaf({19, 2 * form.heads * form.head}, 5) * size);
      }
    }
  }
}

TEST_CASE("the gated norm's tolerance notices a wrong eps, head, weight and gate") {
  const at::Tensor x = leaf({19, 64}, 6).detach(), z = leaf({19, 64}, 7).detach();
  const at::Tensor weight = weight_of(16, 8).to(at::kDouble);
  const at::Tensor right = reference::gated_norm(x, z, weight, kEps);
  for (const at::Tensor& wrong :
       {reference::gated_norm(x, z, weight, 3e-2), reference::gated_norm(x, z, weight.repeat({2}), kEps),
        reference::gated_norm(x, z, weight.roll(1), kEps), reference::gated_norm(x, z, weight, kEps) * z,
        reference::gated_norm(x, z.sigmoid(), weight, kEps)})
    CHECK(relative_distance(wrong, right) > 4e-3);
}

TEST_CASE("the gated norm's rows don't depend on threads or on the rows beside them") {
  for (const auto dtype : {at::kFloat, at::kBFloat16}) {
    const at::Tensor x = made({67, 99}, 9, dtype), z = made({67, 99}, 10, dtype),
                     dy = made({67, 99}, 11, dtype);
    const at::Tensor weight = weight_of(33, 12);
    const auto whole = run(x, z, weight, dy, 1), threaded = run(x, z, weight, dy, 3);
    const auto part = run(x.slice(0, 20, 61), z.slice(0, 20, 61), weight, dy.slice(0, 20, 61), 2);
    for (std::size_t i = 0; i < whole.size(); ++i) {
      CHECK(at::equal(threaded[i], whole[i]));
      CHECK(at::equal(part[i], whole[i].slice(0, 20, 61)));
    }
    CHECK(gated_norm(x.slice(0, 0, 0), z.slice(0, 0, 0), weight, kEps).sizes() == at::IntArrayRef({0, 99}));
  }
}

TEST_CASE("the gradient of a norm's gate may be written over the gate") {
  for (const auto dtype : {at::kFloat, at::kBFloat16}) {
    const at::Tensor x = made({9, 70}, 13, dtype), z = made({9, 70}, 14, dtype),
                     dy = made({9, 70}, 15, dtype);
    const at::Tensor weight = weight_of(35, 16);
    const auto apart = run(x, z, weight, dy, 1);
    const at::Tensor dx = dy.clone(), over = z.clone();
    gated_norm_backward_(dx, x, over, weight, kEps, over);
    CHECK(at::equal(over, apart[2]));
    CHECK(at::equal(dx, apart[1]));
  }
}

TEST_CASE("the gated norm's kernels make no tensor of rows but the result, on a CPU and on a GPU") {
  for (const auto device : {at::kCPU, at::kCUDA}) {
    const at::TensorOptions options = at::TensorOptions(at::kMeta).dtype(at::kBFloat16);
    const at::Tensor x = at::empty({64, 256}, options), z = at::empty({64, 512}, options).slice(1, 256);
    const at::Tensor weight = at::empty({128}, options.dtype(at::kFloat));
    const DryRun run({.device = device});
    const at::Tensor y = gated_norm(x, z, weight, kEps);
    CHECK(run.peak().total() == 64 * 256 * 2);
    at::Tensor again;
    gated_norm_backward_(y, x, z, weight, kEps, z, &again);
    CHECK(run.peak().total() == 2 * 64 * 256 * 2);
    const ReferenceOps references;
    (void)gated_norm(x, z, weight, kEps);
    CHECK(run.peak().total() > 3 * 64 * 256 * 2);
  }
}

TEST_CASE("gates of a norm whose elements aren't dense go through the reference") {
  const at::Tensor x = made({5, 8}, 17, at::kFloat), z = made({8, 5}, 18, at::kFloat).t();
  const at::Tensor dy = made({5, 8}, 19, at::kFloat), columns = at::empty({8, 5}).t(),
                   weight = weight_of(4, 20);
  const auto expected = run(x, z.contiguous(), weight, dy, 1);
  const at::Tensor dx = dy.clone();
  CHECK(relative_distance(gated_norm(x, z, weight, kEps), expected[0]) < 1e-6);
  gated_norm_backward_(dx, x, z, weight, kEps, columns);
  CHECK(relative_distance(dx, expected[1]) < 1e-6);
  CHECK(relative_distance(columns, expected[2]) < 1e-6);
}

TEST_CASE("the gated norm names what doesn't fit") {
  const at::Tensor x = at::zeros({3, 8}), weight = at::ones({4}), d = at::zeros({3, 8});
  const auto forward = [&](const at::Tensor& input, const at::Tensor& z, const at::Tensor& w) {
    return error_text([&] { gated_norm(input, z, w, kEps); });
  };
  CHECK_THAT(forward(x, x, at::ones({3})), Contains("whole heads"));
  CHECK_THAT(forward(at::zeros({8, 3}).t(), x, weight), Contains("a dense floating matrix"));
  CHECK_THAT(forward(x, x, at::ones({2, 4})), Contains("a weight [head]"));
  CHECK_THAT(forward(x, x, {}), Contains("a weight [head]"));
  CHECK_THAT(forward(x, at::zeros({3, 4}), weight), Contains("a gate of the input's shape and type"));
  CHECK_THAT(forward(x, x.to(at::kDouble), weight), Contains("a gate of the input's shape and type"));
  const auto backward = [&](const at::Tensor& dy, const at::Tensor& dz) {
    return error_text([&] { gated_norm_backward_(dy, x, x, weight, kEps, dz); });
  };
  CHECK_THAT(backward(at::zeros({8, 3}).t(), d), Contains("a dense gradient of the result"));
  CHECK_THAT(backward(d.to(at::kBFloat16), d), Contains("a dense gradient of the result, of its type"));
  CHECK_THAT(backward(d, at::zeros({3, 4})), Contains("a matrix for the gate's gradient"));
}
