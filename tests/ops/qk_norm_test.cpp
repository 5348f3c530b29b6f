#include "ops/qk_norm/qk_norm.h"

#include <ATen/ATen.h>

#include "base/error.h"
#include "ops/distance.h"
#include "ops/qk_norm_cases.h"
#include "ops/rotary/rotary.h"

using namespace lorikeet::ops;
using namespace lorikeet::test;
using lorikeet::Error;

TEST_CASE("norms of queries and keys with rotary agree with their reference in every dtype") {
  for (const QkNormCase& form : kQkNormCases) {
    INFO(form.name);
    const Forward pair = norm_and_rotate_pair(form, form.norms(at::kBFloat16), form.angles(19));
    check_all_dtypes([&](const at::Tensor& x) { return as_autograd(x, pair); },
                     [&](const at::Tensor& x) { return form.reference(x); }, form.input(19), /*roundings=*/2);
  }
}

TEST_CASE("the reference of norms with rotary has the gradients of finite differences") {
  for (const QkNormCase& form : kQkNormCases) {
    INFO(form.name);
    CHECK(gradcheck([&](const auto& in) { return form.reference(in[0]); }, {form.input(3)}).worst < 1e-7);
  }
}

TEST_CASE("the tolerance of norms with rotary notices the keys' scale on queries, and norms after rotary") {
  const QkNormCase& form = kQkNormCases[0];
  const at::Tensor x = form.input(19), right = form.reference(x);
  QkNorms swapped = form.norms(at::kDouble);
  std::swap(swapped.q, swapped.k);
  const RotaryAngles angles = form.angles(19);
  CHECK(relative_distance(reference::norm_and_rotate(x, swapped, angles, form.layout), right) > 0.01);
  const at::Tensor rotated = reference::rotary(x, angles.cos, angles.sin, form.layout);
  CHECK(relative_distance(reference::norm_and_rotate(rotated, form.norms(at::kDouble), {}, form.layout),
                          right) > 0.01);
}

TEST_CASE("norms with rotary name what doesn't fit") {
  const QkNormCase& form = kQkNormCases[0];
  const QkNorms norms = form.norms(at::kFloat);
  CHECK_THROWS_AS(norm_and_rotate(at::randn({3, 9}), norms, {}, form.layout), Error);
  CHECK_THROWS_AS(norm_and_rotate(at::randn({128, 3}).t(), norms, {}, form.layout), Error);
  QkNorms narrow = norms;
  narrow.k.weight = at::ones({8});
  CHECK_THROWS_AS(norm_and_rotate(at::randn({3, form.layout.width()}), narrow, {}, form.layout), Error);
}
