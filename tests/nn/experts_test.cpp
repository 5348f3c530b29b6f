// A block of experts against the reference's formula and its gradient by autograd.
#include "nn/experts.h"

#include <ATen/ATen.h>
#include <torch/csrc/autograd/autograd.h>

#include "nn/batch.h"
#include "nn/filled_unit.h"
#include "support/catch.h"
#include "support/error_text.h"
#include "support/toy_lora.h"

using namespace lorikeet;
using namespace lorikeet::nn;
using test::error_text;
using test::fill_randomly;
using test::random;

namespace {

ExpertsSpec spec_of(std::int64_t per_token, bool normalized) {
  return {.prefix = "layers.0.mlp",
          .hidden_size = 64,
          .intermediate_size = 32,
          .count = 6,
          .router = {.per_token = per_token, .normalized = normalized}};
}

// A unit with a block of experts, filled with random weights, which are kept as its policy stores them.
struct Block {
  Block(const ExpertsSpec& spec, const precision::Policy& policy)
      : factory(policy), unit("layer 0"), experts(spec, factory, unit) {
    fill_randomly(unit);
  }

  UnitLoan loan() const { return {&unit, unit.part()}; }
  // Of the router, which is segment 0, then gate, up and down of each expert: a segment as numbers in fp64.
  at::Tensor numbers(std::size_t segment) const {
    const auto& shape = unit.segments().at(segment).shape;
    return loan().matrix(segment, shape[0], shape[1]).dense(at::kFloat).to(at::kDouble);
  }

  FrozenFactory factory;
  WeightUnit unit;
  Experts experts;
};

struct Pass {
  at::Tensor y, dx;
};

Pass pass_of(const Block& block, const at::Tensor& x, const at::Tensor& dy, bool give_up_up = false) {
  const Batch batch;
  const ForwardContext context{.batch = batch};
  FeedForwardKept kept;
  Pass pass;
  pass.y = block.experts.forward(x, block.loan(), context, &kept, nullptr);
  if (give_up_up) {
    kept.up.reset();
    block.experts.up_again(x, block.loan(), context, kept);
  }
  pass.dx = block.experts.backward(dy, block.loan(), context, kept, /*input_gradient=*/true).dx;
  return pass;
}

Pass expected(const Block& block, const ExpertsSpec& spec, const at::Tensor& x, const at::Tensor& dy) {
  std::vector<at::Tensor> gate_up, down;
  for (std::size_t e = 0; e < static_cast<std::size_t>(spec.count); ++e) {
    gate_up.push_back(at::cat({block.numbers(1 + 3 * e), block.numbers(2 + 3 * e)}));
    down.push_back(block.numbers(3 + 3 * e));
  }
  const at::Tensor input = x.to(at::kDouble).requires_grad_(true);
  const at::Tensor y = ops::reference::gated_experts(input, block.numbers(0), at::stack(gate_up),
                                                     at::stack(down), spec.router);
  return {y.detach(), torch::autograd::grad({(y * dy.to(at::kDouble)).sum()}, {input})[0]};
}

}  // namespace

TEST_CASE("a block of experts computes the reference's output and gradient, in every kind of storage") {
  struct Case {
    precision::Policy policy;
    double limit;
    const char* why;
  };
  precision::Policy bf16 = test::fp32_policy(), nf4 = test::fp32_policy();
  bf16.base_storage = DType::kBF16;
  nf4.quantization = precision::FourBits{};
  const Case cases[] = {{test::fp32_policy(), 2e-6, "fp32 sums of a few hundred terms"},
                        {bf16, 2e-6, "the same: weights are compared as they are stored"},
                        {nf4, 2e-6, "the same"}};
  for (const Case& of : cases) {
    for (const bool normalized : {true, false}) {
      for (const std::int64_t per_token : {1, 2, 6}) {
        CAPTURE(normalized, per_token, of.why);
        const ExpertsSpec spec = spec_of(per_token, normalized);
        const Block block(spec, of.policy);
        const at::Tensor x = random({21, 64}, 1), dy = random({21, 64}, 2);
        const Pass found = pass_of(block, x, dy), wanted = expected(block, spec, x, dy);
        CHECK(test::relative_error(found.y, wanted.y) < of.limit);
        CHECK(test::relative_error(found.dx, wanted.dx) < of.limit);
        const Pass again = pass_of(block, x, dy, /*give_up_up=*/true);
        CHECK(at::equal(again.dx, found.dx));
        // Weights that are normalised otherwise are far from that.
        if (per_token == 2)
          CHECK(test::relative_error(expected(block, spec_of(2, !normalized), x, dy).y, wanted.y) > 1e-2);
      }
    }
  }
}

TEST_CASE("biases of router and experts take part, in the gradient too") {
  ExpertsSpec spec = spec_of(2, true);
  spec.router_bias = spec.bias = true;
  const Block block(spec, test::fp32_policy());
  // Segments: the router's weight and bias, then of each expert gate, up and their biases, down and its bias.
  const auto numbers = [&](std::size_t segment) {
    return block.unit.held(segment).values.view(block.unit.segments()[segment].shape).to(at::kDouble);
  };
  const at::Tensor x = random({21, 64}, 1), dy = random({21, 64}, 2);
  const at::Tensor input = x.to(at::kDouble).requires_grad_(true);
  const at::Tensor logits = at::linear(input, numbers(0), numbers(1));
  const at::Tensor probabilities = logits.softmax(1);
  const auto [weights, chosen] = probabilities.topk(2, 1);
  at::Tensor y = at::zeros({21, 64}, at::kDouble);
  for (std::int64_t e = 0; e < spec.count; ++e) {
    const auto first = static_cast<std::size_t>(2 + 6 * e);
    const at::Tensor gate = at::linear(input, numbers(first), numbers(first + 2));
    const at::Tensor up = at::linear(input, numbers(first + 1), numbers(first + 3));
    const at::Tensor out = at::linear(gate * at::sigmoid(gate) * up, numbers(first + 4), numbers(first + 5));
    const at::Tensor weight = (weights / weights.sum(1, true) * chosen.eq(e)).sum(1, true);
    y = y + weight * out;
  }
  const at::Tensor dx = torch::autograd::grad({(y * dy.to(at::kDouble)).sum()}, {input})[0];
  const Pass found = pass_of(block, x, dy);
  CHECK(test::relative_error(found.y, y.detach()) < 2e-6);
  CHECK(test::relative_error(found.dx, dx) < 2e-6);
}

TEST_CASE("experts keep nothing without gradients, and a row's result doesn't know its neighbours") {
  const ExpertsSpec spec = spec_of(2, true);
  const Block block(spec, test::fp32_policy());
  const at::Tensor x = random({21, 64}, 1);
  const Batch batch;
  const ForwardContext context{.batch = batch};
  const at::Tensor all = block.experts.forward(x, block.loan(), context, nullptr, nullptr);
  const at::Tensor some = block.experts.forward(x.slice(0, 3, 8), block.loan(), context, nullptr, nullptr);
  CHECK(test::relative_error(some, all.slice(0, 3, 8)) < 1e-6);
  CHECK(block.experts.forward(x.slice(0, 0, 0), block.loan(), context, nullptr, nullptr).size(0) == 0);
  FeedForwardKept kept;
  block.experts.forward(x, block.loan(), context, &kept, nullptr);
  CHECK_FALSE(block.experts.backward(x, block.loan(), context, kept, /*input_gradient=*/false).dx.defined());
  CHECK_FALSE(block.experts.learns());
}

TEST_CASE("a token can't pass more experts than there are") {
  CHECK(error_text([] { Block(spec_of(7, true), test::fp32_policy()); }) ==
        "[layers.0.mlp] expected from 1 to 6 experts a token, as many as there are, got 7");
}
