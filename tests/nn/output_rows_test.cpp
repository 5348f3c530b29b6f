// Layers that compute what comes behind attention for some rows alone, against the same layers on all rows.
#include "nn/output_rows.h"

#include <ATen/ATen.h>

#include "nn/pass_state.h"
#include "support/catch.h"
#include "support/toy_lora.h"

using namespace lorikeet;
using namespace lorikeet::test;

namespace {

// A model of one layer of either toy family, with dropout, whose masks are keyed by rows.
nn::CausalLMSpec one_layer(const nn::CausalLMSpec& from, std::size_t layer) {
  nn::CausalLMSpec spec = from;
  spec.layers = {from.layers[layer]};
  spec.layers.front().index = 0;
  spec.shape.layers = 1;
  return spec;
}

std::vector<nn::CausalLMSpec> every_form() {
  std::vector<nn::CausalLMSpec> specs;
  for (const nn::CausalLMSpec& family : every_toy_spec()) {
    for (std::size_t layer = 0; layer < family.layers.size(); ++layer) {
      // One that reads another's keys is none by itself.
      if (!family.layers[layer].attention.keys_of) specs.push_back(one_layer(family, layer));
    }
  }
  return specs;
}

at::Tensor random(at::IntArrayRef sizes, std::uint64_t seed) {
  auto generator = at::make_generator<at::CPUGeneratorImpl>(seed);
  return at::randn(sizes, generator, at::TensorOptions(at::kFloat));
}

struct Pass {
  at::Tensor out, dx, adapters, dinputs;
};

// Forward and backward of the only layer on a stream of random numbers, in training.
Pass run(ToyLora& toy, const nn::Batch& batch, const nn::OutputRows* rows, const at::Tensor& dy) {
  toy.adapters.store().gradients().zero_();
  const nn::DecoderLayer& layer = *toy.model.layers().front();
  nn::ForwardContext context = toy.model.context({.batch = batch, .training = true, .step = 3});
  context.output_rows = rows;
  if (const auto& inputs = toy.model.spec().layer_inputs) {
    context.pass->layer_inputs = random({batch.size(), inputs->layers * inputs->width()}, 2);
    context.pass->layer_input_gradients = at::zeros_like(context.pass->layer_inputs);
  }
  const nn::UnitLoan weights = toy.model.store().borrow(layer.unit());
  nn::LayerKept kept;
  const at::Tensor x = random({batch.size(), toy.model.shape().hidden_size}, 1);
  Pass pass;
  pass.out = layer.forward({x, {}}, weights, context, &kept).value();
  pass.dx = layer.backward(dy.clone(), weights, context, kept, /*input_gradient=*/true);
  pass.adapters = toy.adapters.store().gradients().clone();
  pass.dinputs = context.pass->layer_input_gradients;
  return pass;
}

}  // namespace

TEST_CASE("every form of a layer gives its output rows alone what it gives them among all, gradients too") {
  const nn::Batch batch = nn::pack_sequences(toy_prompts(), {}, at::kCPU);
  const at::Tensor index = at::tensor({1, 2, 5, 6, 9}, at::TensorOptions(at::kLong));
  const nn::OutputRows rows = nn::output_rows(batch, index);
  CHECK(at::equal(rows.batch.position_ids, batch.position_ids.index_select(0, index)));
  CHECK(at::equal(rows.batch.sample_ids, batch.sample_ids.index_select(0, index)));
  for (const nn::CausalLMSpec& spec : every_form()) {
    CAPTURE(spec.layers.front().attention.prefix, spec.layers.front().parallel);
    ToyLora toy({.rank = 3, .alpha = 6, .dropout = 0.25}, fp32_policy(), {}, spec);
    const at::Tensor dy = random({index.size(0), spec.shape.hidden_size}, 2);
    const at::Tensor all_dy = at::zeros({batch.size(), spec.shape.hidden_size}).index_copy_(0, index, dy);
    const Pass some = run(toy, batch, &rows, dy), all = run(toy, batch, nullptr, all_dy);
    // fp32 sums of the same terms in another order.
    const double limit = 2e-6;
    CHECK(relative_error(some.out, all.out.index_select(0, index)) < limit);
    CHECK(relative_error(some.dx, all.dx) < limit);
    CHECK(relative_error(some.adapters, all.adapters) < limit);
    if (some.dinputs.defined()) CHECK(relative_error(some.dinputs, all.dinputs) < limit);
    // Other rows, or the masks of other rows, are far from that.
    CHECK(relative_error(some.out, all.out.index_select(0, index + 1)) > 0.1);
    nn::OutputRows other_masks = rows;
    other_masks.batch.position_ids = rows.batch.position_ids + 1;
    CHECK(relative_error(run(toy, batch, &other_masks, dy).out, some.out) > 1e-3);
  }
}

TEST_CASE("a layer without output rows passes no gradient") {
  const nn::Batch batch = nn::pack_sequences(toy_prompts(), {}, at::kCPU);
  const nn::OutputRows none = nn::output_rows(batch, at::empty({0}, at::kLong));
  for (const nn::CausalLMSpec& spec : every_form()) {
    CAPTURE(spec.layers.front().attention.prefix, spec.layers.front().parallel);
    ToyLora toy({.rank = 3, .alpha = 6}, fp32_policy(), {}, spec);
    const Pass pass = run(toy, batch, &none, at::empty({0, spec.shape.hidden_size}));
    CHECK(pass.out.sizes() == at::IntArrayRef{0, spec.shape.hidden_size});
    CHECK(pass.dx.size(0) == batch.size());
    CHECK(pass.dx.count_nonzero().item<std::int64_t>() == 0);
    CHECK(pass.adapters.count_nonzero().item<std::int64_t>() == 0);
  }
}
