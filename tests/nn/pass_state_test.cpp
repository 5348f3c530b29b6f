#include "nn/pass_state.h"

#include <ATen/ATen.h>

#include "support/catch.h"

using namespace lorikeet::nn;

TEST_CASE("readers' gradients of a layer's keys and values add up, and are taken once") {
  SharedKeys keys;
  const at::Tensor rows = at::arange(12).view({2, 6});
  keys.put(3, rows);
  CHECK(at::equal(keys.rows(3), rows));
  CHECK_FALSE(keys.take_gradient(3).defined());
  const at::Tensor k = at::full({2, 1, 3}, 1.0), v = at::full({2, 1, 3}, 10.0);
  keys.add_gradients(3, k, v);
  keys.add_gradients(3, k, 2 * v);
  const at::Tensor both = keys.take_gradient(3);
  CHECK(at::equal(both, at::cat({at::full({2, 3}, 2.0), at::full({2, 3}, 30.0)}, 1)));
  CHECK_FALSE(keys.take_gradient(3).defined());
  CHECK(at::equal(keys.rows(3), rows));
}

TEST_CASE("keys of a layer that made none in this pass are an error") {
  SharedKeys keys;
  keys.put(0, at::zeros({1, 2}));
  CHECK_THROWS_AS(keys.rows(1), std::out_of_range);
  CHECK_THROWS_AS(keys.take_gradient(1), std::out_of_range);
}
