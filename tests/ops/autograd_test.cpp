#include "ops/autograd.h"

#include <ATen/ATen.h>

#include "ops/reference_backward.h"
#include "support/catch.h"

using namespace lorikeet::ops;

TEST_CASE("operators record a graph but where autograd is off, and again where it is back on") {
  const at::Tensor x = at::ones({2}).requires_grad_(true);
  const auto recorded = [&] { return (x * 2).requires_grad(); };
  CHECK(recorded());
  {
    const WithoutAutograd off;
    CHECK_FALSE(recorded());
    {
      const WithAutograd on;
      CHECK(recorded());
      const WithoutAutograd off_again;
      CHECK_FALSE(recorded());
    }
    CHECK_FALSE(recorded());
  }
  CHECK(recorded());
}

TEST_CASE("a reference's gradient is the same where autograd is off") {
  const auto cube = [](const at::Tensor& x) { return x * x * x; };
  const at::Tensor x = at::tensor({1.0, -2.0, 3.0}, at::kDouble),
                   upstream = at::tensor({1.0, 2.0, 0.5}, at::kDouble);
  const at::Tensor expected = 3 * x * x * upstream;
  const WithoutAutograd off;
  CHECK(at::allclose(reference_backward(cube, x, upstream), expected));
  // A view that was made without autograd is differentiated as any tensor.
  CHECK(at::allclose(reference_backward(cube, x.slice(0, 1, 3), upstream.slice(0, 1, 3)),
                     expected.slice(0, 1, 3)));
}
