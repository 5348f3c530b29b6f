#include "ops/latent_heads/latent_heads.h"

#include <ATen/ATen.h>
#include <ATen/Parallel.h>

#include "ops/distance.h"
#include "ops/dry_run.h"
#include "ops/latent_pair.h"
#include "support/error_text.h"
#include "support/reference_ops.h"

using namespace lorikeet::ops;
using namespace lorikeet::test;
using Catch::Contains;

namespace {

at::Tensor row(std::initializer_list<double> numbers) {
  return at::tensor(numbers, at::kDouble).view({1, -1});
}

}  // namespace

TEST_CASE("latent heads share one rotated key and are filled up with zeros: numbers by hand") {
  // A quarter turn of the first pair, none of the second: (a, b) becomes (-b, a).
  const at::Tensor cos = row({0, 1}), sin = row({1, 0});
  const LatentParts parts{row({1, 2, 3, 4, 5, 6, 7, 8, 9, 10}), row({11, 12, 13, 14, 15, 16}),
                          row({20, 21, 22, 23})};
  // Two heads: a query has 1 number and 4 to be rotated, a key 1 of its own, a value 2.
  const LatentLayout halves{2, 1, 4, 2, false}, neighbours{2, 1, 4, 2, true};
  const at::Tensor values = row({12, 13, 0, 0, 0, 15, 16, 0, 0, 0});
  const at::Tensor in_halves = at::cat(
      {row({1, -4, 3, 2, 5, 6, -9, 8, 7, 10}), row({11, -22, 21, 20, 23, 14, -22, 21, 20, 23}), values}, 1);
  const at::Tensor in_pairs = at::cat(
      {row({1, -3, 2, 4, 5, 6, -8, 7, 9, 10}), row({11, -21, 20, 22, 23, 14, -21, 20, 22, 23}), values}, 1);
  for (const auto dtype : {at::kDouble, at::kFloat, at::kBFloat16}) {
    const LatentParts typed{parts.q.to(dtype), parts.kv.to(dtype), parts.shared_key.to(dtype)};
    CHECK(at::equal(latent_heads(typed, cos, sin, halves), in_halves.to(dtype)));
    CHECK(at::equal(latent_heads(typed, cos, sin, neighbours), in_pairs.to(dtype)));
    // The gradients: turned back, the shared key's summed, what was filled up not read.
    const at::Tensor dy = row({1, 2,  3,  4,  5,  0, 0, 0,  0,  0,  7, 1, 2,  3,  4,
                               8, 10, 20, 30, 40, 5, 6, 99, 99, 99, 7, 8, 99, 99, 99})
                              .to(dtype);
    const LatentParts d{at::empty_like(typed.q), at::empty_like(typed.kv), at::empty_like(typed.shared_key)};
    latent_heads_backward(HeadGradients::of(dy, halves.padded()), cos, sin, halves, d);
    CHECK(at::equal(d.q, row({1, 4, 3, -2, 5, 0, 0, 0, 0, 0}).to(dtype)));
    CHECK(at::equal(d.kv, row({7, 5, 6, 8, 7, 8}).to(dtype)));
    CHECK(at::equal(d.shared_key, row({33, 22, -11, 44}).to(dtype)));
    latent_heads_backward(HeadGradients::of(dy, neighbours.padded()), cos, sin, neighbours, d);
    CHECK(at::equal(d.q, row({1, 3, -2, 4, 5, 0, 0, 0, 0, 0}).to(dtype)));
    CHECK(at::equal(d.shared_key, row({22, -11, 33, 44}).to(dtype)));
  }
}

TEST_CASE("latent heads' reference has the gradients of finite differences") {
  for (const LatentLayout& layout : kLatentLayouts) {
    const auto [cos, sin] = latent_angles(4, layout);
    const auto reference = latent_reference(layout, cos, sin);
    CHECK(gradcheck([&](const auto& in) { return reference(in[0]); }, {leaf({4, parts_width(layout)}, 1)})
              .worst < 1e-8);
  }
}

TEST_CASE("latent heads agree with their reference in every dtype, forward and backward") {
  for (const LatentLayout& layout : kLatentLayouts) {
    CAPTURE(layout.plain_dim, layout.rotary_dim, layout.value_dim, layout.interleaved);
    const auto [cos, sin] = latent_angles(19, layout);
    check_all_dtypes(
        [&, c = cos, s = sin](const auto& rows) { return as_autograd(rows, latent_pair(layout, c, s)); },
        latent_reference(layout, cos, sin), leaf({19, parts_width(layout)}, 2));
  }
}

TEST_CASE("latent heads with the other pairs, angles or heads are not the same") {
  const LatentLayout layout = kLatentLayouts[0];
  LatentLayout halves = layout;
  halves.interleaved = false;
  const at::Tensor rows = leaf({9, parts_width(layout)}, 3).detach();
  const auto [cos, sin] = latent_angles(10, layout);
  const auto at_rows = [&](const LatentLayout& of, std::int64_t from) {
    return latent_reference(of, cos.slice(0, from, from + 9), sin.slice(0, from, from + 9))(rows);
  };
  const at::Tensor right = at_rows(layout, 0);
  CHECK(relative_distance(at_rows(halves, 0), right) > 0.01);
  CHECK(relative_distance(at_rows(layout, 1), right) > 0.01);
  CHECK(relative_distance(at_rows({2, 56, 16, 40, true}, 0), right.narrow(1, 0, 2 * 72 * 3)) > 0.01);
}

TEST_CASE("latent heads' rows don't depend on threads or on the rows beside them") {
  for (const auto dtype : {at::kFloat, at::kBFloat16}) {
    for (const LatentLayout& layout : kLatentLayouts) {
      const auto [cos, sin] = latent_angles(67, layout);
      const at::Tensor rows = leaf({67, parts_width(layout)}, 4).detach().to(dtype);
      const auto run = [&, c = cos, s = sin](std::int64_t begin, std::int64_t end, int threads) {
        const int before = at::get_num_threads();
        at::set_num_threads(threads);
        Backward backward;
        const at::Tensor y = latent_pair(layout, c.slice(0, begin, end), s.slice(0, begin, end))(
            rows.slice(0, begin, end), backward);
        const at::Tensor dx = backward(y);
        at::set_num_threads(before);
        return std::pair{y, dx};
      };
      const auto whole = run(0, 67, 1), threaded = run(0, 67, 3), part = run(20, 61, 2);
      CHECK(at::equal(threaded.first, whole.first));
      CHECK(at::equal(threaded.second, whole.second));
      CHECK(at::equal(part.first, whole.first.slice(0, 20, 61)));
      CHECK(at::equal(part.second, whole.second.slice(0, 20, 61)));
      CHECK(run(0, 0, 1).first.size(0) == 0);
    }
  }
}

TEST_CASE("latent heads whose elements aren't dense go through the reference") {
  const LatentLayout layout = kLatentLayouts[0];
  const auto [cos, sin] = latent_angles(7, layout);
  const at::Tensor rows = leaf({7, parts_width(layout)}, 5).detach().to(at::kFloat);
  const at::Tensor columns = rows.t().contiguous().t(), gradients = at::empty_like(columns);
  const at::Tensor expected = latent_heads(latent_parts(rows, layout), cos, sin, layout);
  CHECK(relative_distance(latent_heads(latent_parts(columns, layout), cos, sin, layout), expected) < 1e-6);
  const at::Tensor dense = at::empty_like(rows);
  const HeadGradients of = HeadGradients::of(expected, layout.padded());
  latent_heads_backward(of, cos, sin, layout, latent_parts(dense, layout));
  latent_heads_backward(of, cos, sin, layout, latent_parts(gradients, layout));
  CHECK(gradients.stride(0) == 1);
  CHECK(relative_distance(gradients, dense) < 1e-6);
}

TEST_CASE("latent heads' kernels make no tensor but the result and angles in fp32, on a CPU and on a GPU") {
  const LatentLayout layout = kLatentLayouts[0];
  for (const auto device : {at::kCPU, at::kCUDA}) {
    const at::TensorOptions options = at::TensorOptions(at::kMeta).dtype(at::kBFloat16);
    const at::Tensor rows = at::empty({64, parts_width(layout)}, options), made = at::empty_like(rows);
    const at::Tensor angles = at::empty({64, layout.rotary_dim / 2}, options.dtype(at::kFloat));
    const DryRun run({.device = device});
    const at::Tensor y = latent_heads(latent_parts(rows, layout), angles, angles, layout);
    CHECK(run.peak().total() == 64 * 3 * 3 * 48 * 2);
    latent_heads_backward(HeadGradients::of(y, layout.padded()), angles, angles, layout,
                          latent_parts(made, layout));
    CHECK(run.peak().total() == 64 * 3 * 3 * 48 * 2);
    const ReferenceOps references;
    (void)latent_heads(latent_parts(rows, layout), angles, angles, layout);
    CHECK(run.peak().total() > 2 * 64 * 3 * 3 * 48 * 2);
  }
}

TEST_CASE("latent heads name what doesn't fit") {
  const LatentLayout layout{2, 4, 2, 3};
  const at::Tensor q = at::zeros({5, 12}), kv = at::zeros({5, 14}), key = at::zeros({5, 2}),
                   a = at::zeros({5, 1});
  const auto text = [&](const LatentParts& parts, const at::Tensor& cos, const at::Tensor& sin) {
    return error_text([&] { (void)latent_heads(parts, cos, sin, layout); });
  };
  CHECK_THAT(text({at::zeros({12}), kv, key}, a, a), Contains("a matrix of queries"));
  CHECK_THAT(text({at::zeros({5, 11}), kv, key}, a, a),
             Contains("queries [tokens, heads * (plain + rotary)]"));
  CHECK_THAT(text({q, at::zeros({4, 14}), key}, a, a), Contains("keys and values [tokens"));
  CHECK_THAT(text({q, kv.to(at::kDouble), key}, a, a), Contains("keys and values [tokens"));
  CHECK_THAT(text({q, kv, at::zeros({5, 4})}, a, a), Contains("a shared key [tokens, rotary]"));
  CHECK_THAT(text({q, kv, key}, at::zeros({5, 2}), at::zeros({5, 2})), Contains("half of the rotated"));
  CHECK_THAT(text({q, kv, key}, a, at::zeros({4, 1})), Contains("half of the rotated"));
  const HeadGradients narrow = HeadGradients::of(at::zeros({5, 18}), {2, 2, 3});
  CHECK_THAT(error_text([&] { latent_heads_backward(narrow, a, a, layout, {q, kv, key}); }),
             Contains("gradients [tokens, heads, head_dim]"));
}
