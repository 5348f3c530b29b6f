// A block of experts with a shared one against plain formulas and their gradient by autograd.
#include "nn/shared_expert.h"

#include <ATen/ATen.h>
#include <torch/csrc/autograd/autograd.h>

#include "nn/batch.h"
#include "nn/filled_unit.h"
#include "support/catch.h"
#include "support/toy_lora.h"

using namespace lorikeet;
using namespace lorikeet::nn;
using test::fill_randomly;
using test::random;

namespace {

ExpertsSpec spec_of(bool gated) {
  return {.prefix = "layers.0.mlp",
          .hidden_size = 64,
          .intermediate_size = 32,
          .count = 4,
          .router = {.per_token = 2},
          .shared = SharedExpertSpec{.intermediate_size = 40, .gate = gated ? "shared_expert_gate" : ""}};
}

// A unit with the block, filled with random weights, which are kept as its policy stores them.
struct Block {
  Block(const ExpertsSpec& spec, const precision::Policy& policy)
      : factory(policy), unit("layer 0"), experts(spec, factory, unit) {
    fill_randomly(unit);
  }

  UnitLoan loan() const { return {&unit, unit.part()}; }
  // A tensor of the checkpoint as numbers in fp64.
  at::Tensor numbers(const std::string& name) const {
    for (std::size_t i = 0; i < unit.segments().size(); ++i) {
      const WeightSegment& segment = unit.segments()[i];
      if (segment.name == "layers.0.mlp." + name + ".weight")
        return loan().matrix(i, segment.shape[0], segment.shape[1]).dense(at::kFloat).to(at::kDouble);
    }
    FAIL("no tensor " << name);
    return {};
  }

  FrozenFactory factory;
  WeightUnit unit;
  SharedExpert experts;
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
    kept.shared.front().up.reset();
    block.experts.up_again(x, block.loan(), context, kept);
  }
  pass.dx = block.experts.backward(dy, block.loan(), context, kept, /*input_gradient=*/true).dx;
  return pass;
}

// `gate`: what the shared expert's output is multiplied by, of x.
template <typename Gate>
Pass expected(const Block& block, const ExpertsSpec& spec, const at::Tensor& x, const at::Tensor& dy,
              const Gate& gate) {
  std::vector<at::Tensor> gate_up, down;
  for (std::int64_t e = 0; e < spec.count; ++e) {
    const std::string expert = "experts." + std::to_string(e) + ".";
    gate_up.push_back(at::cat({block.numbers(expert + "gate_proj"), block.numbers(expert + "up_proj")}));
    down.push_back(block.numbers(expert + "down_proj"));
  }
  const at::Tensor input = x.to(at::kDouble).requires_grad_(true);
  const auto linear = [&](const at::Tensor& of, const std::string& name) {
    return at::matmul(of, block.numbers("shared_expert." + name).t());
  };
  const at::Tensor activated = at::silu(linear(input, "gate_proj")) * linear(input, "up_proj");
  const at::Tensor y = ops::reference::gated_experts(input, block.numbers("gate"), at::stack(gate_up),
                                                     at::stack(down), spec.router) +
                       gate(input) * linear(activated, "down_proj");
  return {y.detach(), torch::autograd::grad({(y * dy.to(at::kDouble)).sum()}, {input})[0]};
}

}  // namespace

TEST_CASE("a shared expert is added, times its gate, with the gradient through both") {
  precision::Policy bf16 = test::fp32_policy(), nf4 = test::fp32_policy();
  bf16.base_storage = DType::kBF16;
  nf4.quantization = precision::FourBits{};
  const at::Tensor x = random({21, 64}, 1), dy = random({21, 64}, 2);
  constexpr double kLimit =
      2e-6;  // fp32 sums of a few hundred terms; weights are compared as they are stored
  for (const precision::Policy& policy : {test::fp32_policy(), bf16, nf4}) {
    for (const bool gated : {true, false}) {
      CAPTURE(gated);
      const ExpertsSpec spec = spec_of(gated);
      const Block block(spec, policy);
      const auto gate = [&](const at::Tensor& input) {
        return gated ? at::sigmoid(at::matmul(input, block.numbers("shared_expert_gate").t()))
                     : at::ones({1}, at::kDouble);
      };
      const Pass found = pass_of(block, x, dy), wanted = expected(block, spec, x, dy, gate);
      CHECK(test::relative_error(found.y, wanted.y) < kLimit);
      CHECK(test::relative_error(found.dx, wanted.dx) < kLimit);
      CHECK(at::equal(pass_of(block, x, dy, /*give_up_up=*/true).dx, found.dx));
      // Without the gate's own gradient, and with its sigmoid closed, the distance is far larger.
      const auto frozen = [&](const at::Tensor& input) { return gate(input).detach(); };
      const auto closed = [&](const at::Tensor& input) { return 0 * gate(input); };
      if (gated) CHECK(test::relative_error(expected(block, spec, x, dy, frozen).dx, wanted.dx) > 1e-2);
      CHECK(test::relative_error(expected(block, spec, x, dy, closed).y, wanted.y) > 1e-2);
    }
  }
}

TEST_CASE("the gate of a shared expert isn't quantised, its matrices are") {
  precision::Policy nf4 = test::fp32_policy();
  nf4.quantization = precision::FourBits{};
  const Block block(spec_of(true), nf4);
  std::size_t plain = 0;
  for (const WeightSegment& segment : block.unit.segments()) {
    const bool is_gate = segment.name == "layers.0.mlp.shared_expert_gate.weight" ||
                         segment.name == "layers.0.mlp.gate.weight";
    CHECK((segment.quantized == nullptr) == is_gate);
    plain += is_gate ? 1 : 0;
  }
  CHECK(plain == 2);
}

TEST_CASE("a shared expert keeps nothing without gradients, and takes no rows") {
  const Block block(spec_of(true), test::fp32_policy());
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
