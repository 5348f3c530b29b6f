#include "nn/checkpointing.h"

#include <ATen/ATen.h>

#include "models/toy_lora.h"
#include "support/catch.h"

using namespace lorikeet;
using namespace lorikeet::test;

namespace {

// Loss and gradients with checkpointing equal those without, to the bit.
void check_bitwise(const peft::LoraConfig& config) {
  ToyLora toy(config);
  const nn::Batch batch = labelled(toy_prompts());
  const auto plain = toy.gradients({batch}, 0.25, 3);
  REQUIRE(plain.second.norm().item<double>() > 0);
  toy.model.enable_checkpointing(toy.adapters.store().anchor());
  const auto checkpointed = toy.gradients({batch}, 0.25, 3);
  CHECK(at::equal(plain.first, checkpointed.first));
  CHECK(at::equal(plain.second, checkpointed.second));
}

}  // namespace

TEST_CASE("activation checkpointing gives bitwise equal gradients") {
  check_bitwise({.rank = 3, .alpha = 6});
}

TEST_CASE("activation checkpointing runs dropout's masks again") {
  check_bitwise({.rank = 3, .alpha = 6, .dropout = 0.4});
}

TEST_CASE("activation checkpointing works where some or all layers have no adapter") {
  check_bitwise({.rank = 3, .alpha = 6, .target_modules = {"h.2.ffn.w2"}});
  check_bitwise({.rank = 3, .alpha = 6, .target_modules = {"h.0.attn.query"}});
  check_bitwise({.rank = 3, .alpha = 6, .target_modules = {"output"}});
}

TEST_CASE("a checkpointed layer runs once forward and once more in backward") {
  int runs = 0;
  const at::Tensor weight = at::randn({4});
  const auto layer = [&](const nn::Hidden& hidden) {
    ++runs;
    return nn::Hidden{hidden.value().sin() * weight, hidden.value().cos()};
  };
  const at::Tensor residual = at::randn({3, 4}).requires_grad_(), delta = at::randn({3, 4}).requires_grad_();
  const at::Tensor anchor = at::zeros({1}).requires_grad_();
  const nn::Hidden expected = layer({residual, delta});
  (expected.residual.sum() + 2 * expected.delta.sum()).backward();
  const at::Tensor d_residual = residual.grad().clone(), d_delta = delta.grad().clone();
  residual.mutable_grad() = at::Tensor();
  delta.mutable_grad() = at::Tensor();

  runs = 0;
  const nn::Hidden found = nn::checkpointed(layer, {residual, delta}, anchor);
  CHECK(runs == 1);
  CHECK(at::equal(found.residual, expected.residual));
  (found.residual.sum() + 2 * found.delta.sum()).backward();
  CHECK(runs == 2);
  CHECK(at::equal(residual.grad(), d_residual));
  CHECK(at::equal(delta.grad(), d_delta));
}
