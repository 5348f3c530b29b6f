#include "ops/norm_of_gated/norm_of_gated.h"

#include <ATen/ATen.h>
#include <ATen/Parallel.h>

#include <cmath>

#include "ops/distance.h"
#include "ops/dry_run.h"
#include "ops/norm_of_gated_cases.h"
#include "support/error_text.h"
#include "support/poisoned_memory.h"
#include "support/reference_ops.h"

using namespace lorikeet::ops;
using namespace lorikeet::test;
using Catch::Contains;

namespace {

constexpr double kEps = 1e-5;

at::Tensor made(at::IntArrayRef sizes, std::uint64_t seed, at::ScalarType dtype) {
  return leaf(sizes, seed).detach().to(dtype);
}

// What every dtype holds exactly.
at::Tensor weight_of(std::int64_t width, std::uint64_t seed) { return made({width}, seed, at::kBFloat16); }

std::vector<at::Tensor> run(const at::Tensor& x, const at::Tensor& z, const at::Tensor& weight,
                            std::int64_t groups, const at::Tensor& dy, int threads) {
  const int before = at::get_num_threads();
  at::set_num_threads(threads);
  at::Tensor dx = dy.clone(), dz = at::empty_like(x), again;
  const at::Tensor y = norm_of_gated(x, z, weight, groups, kEps);
  norm_of_gated_backward_(dx, x, z, weight, groups, kEps, dz, &again);
  at::set_num_threads(before);
  return {y, dx, dz, again};
}

}  // namespace

TEST_CASE("the norm of what was gated divides each group of x silu(z): numbers by hand") {
  // u: groups (3, 4) and (0, -2), mean squares 12.5 and 2; with eps 3.5 they become 16 and 5.5.
  const double open = std::log(3.0), gate = 0.75 * open, closed = -0.25 * open;  // its sigmoid is 3/4
  const at::Tensor z = at::tensor({open, -open, open, open}).view({1, 4});
  const at::Tensor x = at::tensor({3.0 / gate, 4.0 / closed, 0.0, -2.0 / gate}).view({1, 4});
  const at::Tensor weight = at::tensor({2.0, 5.0, 7.0, 3.0});
  const double second = std::sqrt(5.5), all = std::sqrt(7.25 + 3.5);
  const at::Tensor of_two = at::tensor({1.5, 5.0, 0.0, -6.0 / second}).view({1, 4});
  const at::Tensor of_one = at::tensor({6.0 / all, 20.0 / all, 0.0, -6.0 / all}).view({1, 4});
  for (const auto dtype : {at::kDouble, at::kFloat}) {
    const double tolerance = dtype == at::kDouble ? 1e-15 : 3e-7;
    const at::Tensor in = x.to(dtype), gates = z.to(dtype), w = weight.to(dtype);
    CHECK(relative_distance(norm_of_gated(in, gates, w, 2, 3.5), of_two) < tolerance);
    CHECK(relative_distance(norm_of_gated(in, gates, w, 1, 3.5), of_one) < tolerance);
  }
}

TEST_CASE("the norm of what was gated: the reference has the gradients of finite differences") {
  const at::Tensor weight = weight_of(18, 1).to(at::kDouble);
  for (const std::int64_t groups : {1, 3}) {
    CHECK(gradcheck(
              [&](const auto& in) { return reference::norm_of_gated(in[0], in[1], weight, groups, kEps); },
              {leaf({5, 18}, 2), leaf({5, 18}, 3)})
              .worst < 1e-7);
  }
}

TEST_CASE("the norm of what was gated agrees with its reference in every dtype, forward and backward") {
  struct Form {
    std::int64_t group, groups, rows = 19;
  };
  // Narrower than a vector, odd, whole vectors, the widest, and wider than the kernels take.
  for (const Form form : {Form{5, 3}, Form{16, 1}, Form{128, 3}, Form{131, 2}, Form{1030, 1},
                          Form{16384, 1, 2}, Form{16386, 1, 2}}) {
    for (const auto dtype : {at::kBFloat16, at::kFloat}) {
      const at::Tensor weight = weight_of(form.groups * form.group, 4).to(dtype);
      for (const double size : {1.0, 20.0}) {
        CAPTURE(form.group, form.groups, size, c10::toString(dtype));
        check_all_dtypes(
            [&](const auto& rows) {
              return as_autograd(rows, gated_pair(norm_of_gated_with(weight, form.groups, kEps)));
            },
            of_rows([&](const auto& x, const auto& z) {
              return reference::norm_of_gated(x, z, weight.to(at::kDouble), form.groups, kEps);
            }),
            leaf({form.rows, 2 * form.groups * form.group}, 5) * size);
      }
    }
  }
}

TEST_CASE("the tolerance of the norm of what was gated notices a wrong eps, group, weight and gate") {
  const at::Tensor x = leaf({19, 64}, 6).detach(), z = leaf({19, 64}, 7).detach();
  const at::Tensor weight = weight_of(64, 8).to(at::kDouble);
  const at::Tensor right = reference::norm_of_gated(x, z, weight, 4, kEps);
  const at::Tensor gated = x * at::silu(z), all = at::rsqrt((gated * gated).mean(1, true) + kEps);
  const at::Tensor norm_first =
      reference::norm_of_gated(x, at::full_like(z, 40), weight, 4, kEps) * at::silu(z);
  for (const at::Tensor& wrong :
       {reference::norm_of_gated(x, z, weight, 4, 1e-2), reference::norm_of_gated(x, z, weight, 2, kEps),
        reference::norm_of_gated(x, z, weight.roll(16), 4, kEps),
        reference::norm_of_gated(x, z.sigmoid(), weight, 4, kEps), gated * all * weight, norm_first})
    CHECK(relative_distance(wrong, right) > 4e-3);
}

TEST_CASE("rows of a norm of what was gated don't depend on threads or on the rows beside them") {
  for (const auto dtype : {at::kFloat, at::kBFloat16}) {
    const at::Tensor x = made({67, 99}, 9, dtype), z = made({67, 99}, 10, dtype),
                     dy = made({67, 99}, 11, dtype);
    const at::Tensor weight = weight_of(99, 12);
    const auto whole = run(x, z, weight, 3, dy, 1), threaded = run(x, z, weight, 3, dy, 3);
    const auto part = run(x.slice(0, 20, 61), z.slice(0, 20, 61), weight, 3, dy.slice(0, 20, 61), 2);
    for (std::size_t i = 0; i < whole.size(); ++i) {
      CHECK(at::equal(threaded[i], whole[i]));
      CHECK(at::equal(part[i], whole[i].slice(0, 20, 61)));
    }
    const auto none = run(x.slice(0, 0, 0), z.slice(0, 0, 0), weight, 3, dy.slice(0, 0, 0), 2);
    for (const at::Tensor& result : none) CHECK(result.sizes() == at::IntArrayRef({0, 99}));
  }
}

TEST_CASE("the gradient of the gate of a normed product may be written over the gate") {
  for (const auto dtype : {at::kFloat, at::kBFloat16}) {
    const at::Tensor x = made({9, 70}, 13, dtype), z = made({9, 70}, 14, dtype),
                     dy = made({9, 70}, 15, dtype);
    const at::Tensor weight = weight_of(70, 16);
    const auto apart = run(x, z, weight, 2, dy, 1);
    const at::Tensor dx = dy.clone(), over = z.clone();
    norm_of_gated_backward_(dx, x, over, weight, 2, kEps, over);
    CHECK(at::equal(over, apart[2]));
    CHECK(at::equal(dx, apart[1]));
  }
}

TEST_CASE("the kernels of the norm of what was gated read nothing that wasn't written") {
  const PoisonedMemory poisoned;
  for (const auto dtype : {at::kFloat, at::kBFloat16}) {
    const at::Tensor x = made({5, 86}, 17, dtype), z = made({5, 86}, 18, dtype);
    for (const at::Tensor& result : run(x, z, weight_of(86, 19), 2, x, 1))
      CHECK(result.isfinite().all().item<bool>());
  }
}

TEST_CASE("the kernels of the norm of what was gated make no tensor of rows but the result") {
  for (const auto device : {at::kCPU, at::kCUDA}) {
    const at::TensorOptions options = at::TensorOptions(at::kMeta).dtype(at::kBFloat16);
    const at::Tensor x = at::empty({64, 256}, options), z = at::empty({64, 512}, options).slice(1, 256);
    const at::Tensor weight = at::empty({256}, options.dtype(at::kFloat));
    const DryRun run({.device = device});
    const at::Tensor y = norm_of_gated(x, z, weight, 2, kEps);
    CHECK(run.peak().total() == 64 * 256 * 2);
    at::Tensor again;
    norm_of_gated_backward_(y, x, z, weight, 2, kEps, z, &again);
    CHECK(run.peak().total() == 2 * 64 * 256 * 2);
    const ReferenceOps references;
    (void)norm_of_gated(x, z, weight, 2, kEps);
    CHECK(run.peak().total() > 3 * 64 * 256 * 2);
  }
}

TEST_CASE("gates of a normed product whose elements aren't dense go through the reference") {
  const at::Tensor x = made({5, 8}, 20, at::kFloat), z = made({8, 5}, 21, at::kFloat).t();
  const at::Tensor dy = made({5, 8}, 22, at::kFloat), columns = at::empty({8, 5}).t(),
                   weight = weight_of(8, 23);
  const auto expected = run(x, z.contiguous(), weight, 2, dy, 1);
  const at::Tensor dx = dy.clone();
  at::Tensor again;
  CHECK(relative_distance(norm_of_gated(x, z, weight, 2, kEps), expected[0]) < 1e-6);
  norm_of_gated_backward_(dx, x, z, weight, 2, kEps, columns, &again);
  CHECK(relative_distance(dx, expected[1]) < 1e-6);
  CHECK(relative_distance(columns, expected[2]) < 1e-6);
  CHECK(relative_distance(again, expected[3]) < 1e-6);
}

TEST_CASE("the norm of what was gated names what doesn't fit") {
  const at::Tensor x = at::zeros({3, 8}), weight = at::ones({8}), d = at::zeros({3, 8});
  const auto forward = [&](const at::Tensor& input, const at::Tensor& z, const at::Tensor& w,
                           std::int64_t groups = 2) {
    return error_text([&] { norm_of_gated(input, z, w, groups, kEps); });
  };
  CHECK_THAT(forward(x, x, weight, 3),
             Contains("[norm_of_gated] expected a dense floating matrix of whole groups"));
  CHECK_THAT(forward(x, x, weight, 0), Contains("whole groups"));
  CHECK_THAT(forward(x, x, weight, -2), Contains("whole groups"));
  CHECK_THAT(forward(at::zeros({8, 3}).t(), x, weight), Contains("a dense floating matrix"));
  CHECK_THAT(forward(at::zeros({3, 8}, at::kLong), x, weight), Contains("a dense floating matrix"));
  CHECK_THAT(forward(x, x, at::ones({4})), Contains("a weight [groups * group]"));
  CHECK_THAT(forward(x, x, at::ones({2, 4})), Contains("a weight [groups * group]"));
  CHECK_THAT(forward(x, x, {}), Contains("a weight [groups * group]"));
  CHECK_THAT(forward(x, at::zeros({3, 4}), weight), Contains("a gate of the input's shape and type"));
  CHECK_THAT(forward(x, x.to(at::kDouble), weight), Contains("a gate of the input's shape and type"));
  const auto backward = [&](const at::Tensor& dy, const at::Tensor& dz) {
    return error_text([&] { norm_of_gated_backward_(dy, x, x, weight, 2, kEps, dz); });
  };
  CHECK_THAT(backward(at::zeros({8, 3}).t(), d), Contains("a dense gradient of the result"));
  CHECK_THAT(backward(d.to(at::kBFloat16), d), Contains("a dense gradient of the result, of its type"));
  CHECK_THAT(backward(d, at::zeros({3, 4})), Contains("a matrix for the gate's gradient"));
  CHECK_THAT(backward(d, d.to(at::kBFloat16)), Contains("a matrix for the gate's gradient"));
}
