#pragma once

#include <ATen/ATen.h>
#include <torch/csrc/autograd/autograd.h>

#include <functional>

#include "support/as_autograd.h"
#include "support/catch.h"
#include "support/gradcheck.h"
#include "support/tolerance.h"

// What tests of elementwise operators share: a fused pair against the fp64 reference, in every dtype.
namespace lorikeet::test {

using Function = std::function<at::Tensor(const at::Tensor&)>;

inline const Tolerance kTolerances[] = {
    {at::kDouble, 1e-13, 1e-13, "the same fp64 arithmetic in another order"},
    {at::kFloat, 2e-6, 4e-6, "fp32 sums over a row"},
    {at::kBFloat16, 4e-3, 6e-3, "one rounding to 8 bits each way, 2^-9 of the value rounded"},
    {at::kHalf, 6e-4, 1e-3, "one rounding to 11 bits each way"},
};

struct Distance {
  double forward, backward;
};

// The fused function in `dtype` against the reference in fp64, from inputs that `dtype` holds exactly.
inline Distance distance(const Function& fused, const Function& reference, const at::Tensor& input,
                         at::ScalarType dtype) {
  const auto x = input.detach().to(dtype).requires_grad_(true);
  const auto exact = x.detach().to(at::kDouble).requires_grad_(true);
  const auto y = fused(x);
  const auto expected = reference(exact);
  const auto upstream = at::randn(expected.sizes(), at::make_generator<at::CPUGeneratorImpl>(5)).to(dtype);
  const auto dx = torch::autograd::grad({y}, {x}, {upstream})[0];
  const auto expected_dx = torch::autograd::grad({expected}, {exact}, {upstream.to(at::kDouble)})[0];
  CHECK(y.scalar_type() == dtype);
  CHECK(dx.scalar_type() == dtype);
  return {relative_distance(y, expected), relative_distance(dx, expected_dx)};
}

// Of a function that rounds its result `roundings` times.
inline void check_all_dtypes(const Function& fused, const Function& reference, const at::Tensor& input,
                             int roundings = 1) {
  for (const auto& tolerance : kTolerances) {
    INFO(c10::toString(tolerance.dtype) << ": " << tolerance.why);
    const auto found = distance(fused, reference, input, tolerance.dtype);
    CHECK(found.forward < roundings * tolerance.forward);
    CHECK(found.backward < roundings * tolerance.backward);
  }
}

}  // namespace lorikeet::test
