// Experts beside an MLP, each between its norms, against plain formulas and their gradient by autograd.
#include "nn/experts_beside_mlp.h"

#include <ATen/ATen.h>
#include <torch/csrc/autograd/autograd.h>

#include <cmath>

#include "nn/batch.h"
#include "nn/filled_unit.h"
#include "support/catch.h"
#include "support/toy_lora.h"

using namespace lorikeet;
using namespace lorikeet::nn;
using test::fill_randomly;
using test::random;

namespace {

constexpr std::int64_t kExperts = 4;
constexpr double kEps = 1e-3;

ExpertsSpec spec_of() {
  return {.prefix = "layers.0",
          .hidden_size = 64,
          .intermediate_size = 32,
          .count = kExperts,
          .router = {.per_token = 2},
          .activation = ops::Activation::kGeluTanh,
          .names = {.router = "router.proj"},
          .shared = SharedExpertSpec{.intermediate_size = 40, .name = "mlp", .gate = ""},
          .weight_scales = "layers.0.router.per_expert_scale",
          .branch_norms = BranchNorms{.mlp_input = "layers.0.mlp_input",
                                      .mlp_output = "layers.0.mlp_output",
                                      .experts_input = "layers.0.experts_input",
                                      .experts_output = "layers.0.experts_output",
                                      .router_scale = "layers.0.router.scale",
                                      .eps = kEps}};
}

// A unit with the block, filled with random weights, which are kept as its policy stores them.
struct Block {
  explicit Block(const precision::Policy& policy)
      : factory(policy), unit("layer 0"), experts(spec_of(), factory, unit) {
    fill_randomly(unit);
  }

  UnitLoan loan() const { return {&unit, unit.part()}; }
  // A tensor of the checkpoint as numbers in fp64.
  at::Tensor numbers(const std::string& name) const {
    for (std::size_t i = 0; i < unit.segments().size(); ++i) {
      const WeightSegment& segment = unit.segments()[i];
      if (segment.name != "layers.0." + name) continue;
      if (segment.shape.size() == 1) return unit.tensor(i).to(at::kDouble);
      return loan().matrix(i, segment.shape[0], segment.shape[1]).dense(at::kFloat).to(at::kDouble);
    }
    FAIL("no tensor " << name);
    return {};
  }
  void set(const std::string& name, const at::Tensor& values) const {
    for (std::size_t i = 0; i < unit.segments().size(); ++i)
      if (unit.segments()[i].name == "layers.0." + name) unit.tensor(i).copy_(values);
  }

  FrozenFactory factory;
  WeightUnit unit;
  ExpertsBesideMlp experts;
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

// What the formulas below leave out.
struct Without {
  bool router_gradient = false, weight_scales = false, router_scale = false, mlp = false;
};

Pass expected(const Block& block, const at::Tensor& x, const at::Tensor& dy, const Without& without = {}) {
  const at::Tensor input = x.to(at::kDouble).requires_grad_(true);
  const auto unit = [](const at::Tensor& of) { return of / at::sqrt(at::mean(of * of, -1, true) + kEps); };
  const auto norm = [&](const std::string& name, const at::Tensor& of) {
    return unit(of) * block.numbers(name + ".weight");
  };
  const auto mlp = [&](const std::string& name, const at::Tensor& of) {
    const auto linear = [&](const char* module, const at::Tensor& rows) {
      return at::matmul(rows, block.numbers(name + "." + module + ".weight").t());
    };
    return linear("down_proj", at::gelu(linear("gate_proj", of), "tanh") * linear("up_proj", of));
  };
  at::Tensor routed = without.router_gradient ? unit(input).detach() : unit(input);
  if (!without.router_scale) routed = routed * block.numbers("router.scale");
  const at::Tensor logits = at::matmul(routed / std::sqrt(64.0), block.numbers("router.proj.weight").t());
  const auto [values, chosen] = logits.softmax(1).topk(2, 1);
  at::Tensor weights = values / values.sum(1, true);
  if (!without.weight_scales) weights = weights * block.numbers("router.per_expert_scale").index({chosen});
  at::Tensor sum = at::zeros({x.size(0), 64}, at::kDouble);
  for (std::int64_t e = 0; e < kExperts; ++e) {
    sum = sum + (weights * chosen.eq(e)).sum(1, true) *
                    mlp("experts." + std::to_string(e), norm("experts_input", input));
  }
  at::Tensor y = norm("experts_output", sum);
  if (!without.mlp) y = y + norm("mlp_output", mlp("mlp", norm("mlp_input", input)));
  return {y.detach(), torch::autograd::grad({(y * dy.to(at::kDouble)).sum()}, {input})[0]};
}

}  // namespace

TEST_CASE("an MLP and experts beside it are computed between their norms, with the gradient through both") {
  precision::Policy bf16 = test::fp32_policy(), nf4 = test::fp32_policy();
  bf16.base_storage = DType::kBF16;
  nf4.quantization = precision::FourBits{};
  const at::Tensor x = random({21, 64}, 1), dy = random({21, 64}, 2);
  // fp32 sums of a few hundred terms, divided by their roots; weights are compared as they are stored.
  constexpr double kLimit = 4e-6;
  for (const precision::Policy& policy : {test::fp32_policy(), bf16, nf4}) {
    const Block block(policy);
    block.set("router.scale", 3 * random({64}, 3));  // so that the router's logits differ
    const Pass found = pass_of(block, x, dy), wanted = expected(block, x, dy);
    CHECK(test::relative_error(found.y, wanted.y) < kLimit);
    CHECK(test::relative_error(found.dx, wanted.dx) < kLimit);
    CHECK(at::equal(pass_of(block, x, dy, /*give_up_up=*/true).dx, found.dx));
    // Whatever of it is left out, the distance is far larger.
    CHECK(test::relative_error(expected(block, x, dy, {.router_gradient = true}).dx, wanted.dx) > 1e-2);
    CHECK(test::relative_error(expected(block, x, dy, {.weight_scales = true}).y, wanted.y) > 1e-2);
    CHECK(test::relative_error(expected(block, x, dy, {.router_scale = true}).y, wanted.y) > 1e-2);
    CHECK(test::relative_error(expected(block, x, dy, {.mlp = true}).y, wanted.y) > 1e-2);
  }
}

TEST_CASE("experts whose weights are multiplied by 0 have gradients all the same") {
  const Block block(test::fp32_policy());
  block.set("router.scale", 3 * random({64}, 3));
  block.set("router.per_expert_scale", at::tensor({0.0, 0.7, -1.3, 0.0}));
  const at::Tensor x = random({21, 64}, 1), dy = random({21, 64}, 2);
  const Pass found = pass_of(block, x, dy), wanted = expected(block, x, dy);
  CHECK(test::relative_error(found.y, wanted.y) < 4e-6);
  CHECK(test::relative_error(found.dx, wanted.dx) < 4e-6);
}

TEST_CASE("beside experts the router alone isn't quantised, and its scale stays in the statistics' dtype") {
  precision::Policy nf4 = test::fp32_policy();
  nf4.quantization = precision::FourBits{};
  nf4.base_storage = DType::kBF16;
  const Block block(nf4);
  for (const WeightSegment& segment : block.unit.segments()) {
    CAPTURE(segment.name);
    const bool plain = segment.shape.size() == 1 || segment.name == "layers.0.router.proj.weight";
    CHECK((segment.quantized == nullptr) == plain);
    if (segment.name == "layers.0.router.scale") CHECK(segment.dtype == DType::kF32);
  }
}

TEST_CASE("experts beside an MLP keep nothing without gradients, and take no rows") {
  const Block block(test::fp32_policy());
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
  CHECK_FALSE(kept.branch_norms.input.input.defined());
  CHECK_FALSE(block.experts.learns());
}
