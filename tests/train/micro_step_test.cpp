// Training the toy family with LoRA against autograd of its plain composition, in which an adapter is a
// change of the weight: W + scale B A.
#include <ATen/ATen.h>

#include "nn/reorder_rows.h"
#include "support/catch.h"
#include "support/toy_lora.h"

using namespace lorikeet;
using namespace lorikeet::test;

namespace {

const std::vector<std::vector<std::int32_t>> kSequences = toy_prompts();

struct Expected {
  double loss_sum;
  std::map<std::string, at::Tensor> gradients;  // by adapter tensor
};

// A toy family: its blocks, and the same by plain ATen calls.
struct Family {
  nn::CausalLMSpec (*spec)();
  at::Tensor (*logits)(const State&, const std::vector<std::int32_t>&);
};
const Family kToy{toy_spec, toy_logits}, kForms{toy_forms_spec, toy_forms_logits},
    kGemma4{toy_gemma4_spec, toy_gemma4_logits}, kShortConv{toy_short_conv_spec, toy_short_conv_logits},
    kLatent{toy_latent_spec, toy_latent_logits}, kMamba{toy_mamba_spec, toy_mamba_logits};

// Adapters hold a module's rows in group order, the state in the checkpoint's.
nn::RowOrder order_of(const ToyLora& toy, const std::string& module) {
  for (const auto& unit : toy.model.store().units()) {
    for (const nn::WeightSegment& segment : unit->segments())
      if (segment.name == module + ".weight") return segment.order;
  }
  return {};
}

Expected composition(const Family& family, const ToyLora& toy, double loss_scale) {
  State weights;
  for (const auto& [name, tensor] : toy.state) weights[name] = tensor.to(at::kDouble);
  if (toy.model.shape().tied_head) weights["output.weight"] = weights.at("transformer.wte.weight");
  std::map<std::string, at::Tensor> leaves;
  const peft::AdapterStore& store = toy.adapters.store();
  for (const auto& module : toy.adapters.modules()) {
    const at::Tensor a = store.value(module.a).to(at::kDouble).requires_grad_();
    const at::Tensor b = store.value(module.b).to(at::kDouble).requires_grad_();
    const auto in_module_order = [order = order_of(toy, module.name)](const at::Tensor& rows) {
      return nn::to_module_order(rows, order);
    };
    at::Tensor& weight = weights.at(module.name + ".weight");
    weight = weight + module.scale * at::matmul(in_module_order(b), a);
    if (module.start_a) {
      const at::Tensor start_a = store.value(*module.start_a).to(at::kDouble);
      const at::Tensor start_b = in_module_order(store.value(*module.start_b).to(at::kDouble));
      weight = weight + module.scale * at::matmul(start_b, start_a);
    }
    if (module.magnitude) {
      const at::Tensor magnitude = store.value(*module.magnitude).to(at::kDouble).requires_grad_();
      const std::int64_t along = module.is_embedding() ? 0 : 1;  // the embedding's columns
      const at::Tensor ordered = module.is_embedding() ? magnitude : in_module_order(magnitude);
      weight = weight * (ordered / weight.detach().norm(2, along)).unsqueeze(along);
      leaves[store.segment(*module.magnitude).name] = magnitude;
    }
    if (!toy.adapters.config().freeze_a) leaves[store.segment(module.a).name] = a;
    leaves[store.segment(module.b).name] = b;
  }
  for (const auto& table : toy.adapters.tables()) {
    const at::Tensor value = store.value(table.segment).to(at::kDouble).requires_grad_();
    weights.at(table.name + ".weight") = value;
    if (!table.tied_head.empty()) weights.at(table.tied_head + ".weight") = value;
    leaves[store.segment(table.segment).name] = value;
  }
  at::Tensor sum = at::zeros({}, at::TensorOptions(at::kDouble));
  for (const auto& sequence : kSequences) {
    if (sequence.size() < 2) continue;
    const at::Tensor log_p = at::log_softmax(family.logits(weights, sequence), 1);
    for (std::size_t i = 0; i + 1 < sequence.size(); ++i) {
      sum = sum - log_p[static_cast<std::int64_t>(i)][sequence[i + 1]];
    }
  }
  (sum * loss_scale).backward();
  Expected expected{sum.item<double>(), {}};
  for (const auto& [name, leaf] : leaves) expected.gradients[name] = leaf.grad();
  return expected;
}

// Of fp32: the composition itself in fp32 is up to 3.4e-5 from that in fp64.
constexpr double kLimit = 5e-5;
// And up to 1.5e-4 for queries whose gate and delta net behind them take most of the gradient away.
constexpr double kBelowGate = 5e-4;
// With an adapter on everything of Gemma 4's forms: the composition in fp32 is up to 4.6e-5 from that in
// fp64.
constexpr double kAllOfGemma4 = 1e-4;
// With DoRA on every module at once the last layer's queries and keys have small gradients out of large
// terms.
constexpr double kAllDora = 3e-4;

void check_gradients(const Family& family, const peft::LoraConfig& config, std::size_t modules,
                     double limit = kLimit) {
  ToyLora toy(config, fp32_policy(), {}, family.spec());
  REQUIRE(toy.adapters.modules().size() == modules);
  const double loss_scale = 0.125;
  const Expected expected = composition(family, toy, loss_scale);
  const auto [loss, flat] = toy.gradients({labelled(kSequences)}, loss_scale);
  CHECK(loss.item<double>() == Approx(expected.loss_sum).epsilon(2e-6));
  const peft::AdapterStore& store = toy.adapters.store();
  std::size_t trained = 0;
  for (std::size_t i = 0; i < store.size(); ++i) {
    CAPTURE(store.segment(i).name);
    REQUIRE(store.segment(i).frozen == !expected.gradients.contains(store.segment(i).name));
    if (store.segment(i).frozen) continue;
    ++trained;
    const at::Tensor& wanted = expected.gradients.at(store.segment(i).name);
    if (wanted.count_nonzero().item<std::int64_t>() > 0) {
      CHECK(relative_error(store.gradient(i), wanted) < limit);
    } else {  // an expert that no token goes to
      CHECK(store.segment(i).name.find(".experts.") != std::string::npos);
      CHECK(store.gradient(i).count_nonzero().item<std::int64_t>() == 0);
    }
  }
  CHECK(trained == expected.gradients.size());
}

// Two layers of the form of toy_forms_spec's first: parallel blocks behind two norms.
nn::CausalLMSpec two_parallel_layers() {
  nn::CausalLMSpec spec = toy_forms_spec();
  nn::DecoderLayerSpec upper = spec.layers[0];
  upper.index = 1;
  upper.attention.prefix = "transformer.h.1.attn";
  upper.mlp.prefix = "transformer.h.1.ffn";
  upper.attention_norm->name = "transformer.h.1.ln_1";
  upper.mlp_norm->name = "transformer.h.1.ln_2";
  spec.layers = {spec.layers[0], upper};
  spec.shape.layers = 2;
  return spec;
}

}  // namespace

TEST_CASE("gradients of all adapters equal autograd's of the plain composition") {
  check_gradients(kToy, {.rank = 3, .alpha = 6}, 21);
}

TEST_CASE("gradients are right with rsLoRA, for some of a group's projections, and for the head") {
  check_gradients(kToy, {.rank = 4, .alpha = 2, .use_rslora = true, .target_modules = {"value", "query"}}, 6);
  check_gradients(kToy, {.rank = 2, .alpha = 8, .target_modules = {"output", "h.1.ffn.w3"}}, 2);
  check_gradients(kToy, {.rank = 2, .alpha = 8, .target_modules = {"output"}}, 1);
}

TEST_CASE("gradients are right through every form of a layer, whatever of it is trained") {
  check_gradients(kForms, {.rank = 3, .alpha = 6}, 42);
  check_gradients(kForms, {.rank = 3, .alpha = 6, .target_modules = {"key", "w2"}}, 14);
  // Backward ends inside a layer: in each one's attention, and in its MLP.
  for (const char* layer : {"h.0", "h.1", "h.2", "h.3"}) {
    for (const char* module : {".attn.query", ".attn.dense", ".ffn.w3", ".ffn.w2"}) {
      CAPTURE(layer, module);
      check_gradients(kForms, {.rank = 2, .alpha = 8, .target_modules = {std::string(layer) + module}}, 1);
    }
  }
  for (const char* module : {"h.4.attn.dense", "h.4.ffn.shared.w3", "h.4.ffn.shared.w2", "h.5.attn.qkv",
                             "h.5.attn.z", "h.5.attn.b", "h.5.attn.a", "h.5.attn.dense"}) {
    CAPTURE(module);
    check_gradients(kForms, {.rank = 2, .alpha = 8, .target_modules = {module}}, 1);
  }
  check_gradients(kForms, {.rank = 2, .alpha = 8, .target_modules = {"h.4.attn.query"}}, 1, kBelowGate);
}

TEST_CASE("gradients through gated short convolutions, whatever of their block is trained") {
  check_gradients(kShortConv, {.rank = 3, .alpha = 6}, 17);
  check_gradients(kShortConv, {.rank = 3, .alpha = 6, .use_dora = true}, 17);
  check_gradients(kShortConv, {.rank = 3, .alpha = 6, .freeze_a = true}, 17);
  for (const char* module : {"h.0.attn.bcx", "h.0.attn.dense", "h.2.attn.bcx", "h.2.attn.dense"})
    check_gradients(kShortConv, {.rank = 2, .alpha = 8, .target_modules = {module}}, 1);
}

TEST_CASE("gradients through latent attention, whatever of its block is trained") {
  check_gradients(kLatent, {.rank = 3, .alpha = 6}, 22);
  check_gradients(kLatent, {.rank = 3, .alpha = 6, .use_dora = true}, 22);
  check_gradients(kLatent, {.rank = 3, .alpha = 6, .freeze_a = true}, 22);
  for (const char* module :
       {"h.0.attn.query_down", "h.0.attn.query_up", "h.0.attn.latent", "h.0.attn.key_value", "h.0.attn.dense",
        "h.2.attn.query", "h.2.attn.latent", "h.2.attn.key_value", "h.2.attn.dense", "h.1.attn.key"})
    check_gradients(kLatent, {.rank = 2, .alpha = 8, .target_modules = {module}}, 1);
}

TEST_CASE("gradients through Mamba 2 layers, whatever of their block is trained") {
  check_gradients(kMamba, {.rank = 3, .alpha = 6}, 14);
  check_gradients(kMamba, {.rank = 3, .alpha = 6, .use_dora = true}, 14);
  check_gradients(kMamba, {.rank = 3, .alpha = 6, .freeze_a = true}, 14);
  for (const char* module :
       {"h.0.attn.in", "h.0.attn.dense", "h.2.attn.in", "h.2.attn.dense", "h.2.ffn.w13", "h.2.ffn.w2"})
    check_gradients(kMamba, {.rank = 2, .alpha = 8, .target_modules = {module}}, 1);
}

TEST_CASE("gradients are right through Gemma 4's forms of a layer, whatever of it is trained") {
  check_gradients(kGemma4, {.rank = 3, .alpha = 6}, 40);
  check_gradients(kGemma4, {.rank = 3, .alpha = 6, .target_modules = {"key"}}, 3);
  check_gradients(kGemma4, {.rank = 3, .alpha = 6, .target_modules = {".*"}}, 60, kAllOfGemma4);
  check_gradients(kGemma4, {.rank = 3, .alpha = 6, .target_modules = {"w2"}, .modules_to_save = {"wte"}}, 11);
  for (const char* module : {"h.0.attn.value",
                             "h.1.attn.key",
                             "h.2.attn.key",
                             "h.2.attn.query",
                             "h.0.ffn.w3",
                             "h.1.ffn.w2",
                             "h.1.attn.dense",
                             "h.3.attn.query",
                             "h.4.attn.query",
                             "h.3.attn.dense",
                             "h.0.per_layer_input_gate",
                             "h.2.per_layer_projection",
                             "h.4.per_layer_projection",
                             "to_inputs",
                             "wte",
                             "h.2.attn.dense",
                             "h.2.ffn.w3",
                             "h.2.ffn.w2",
                             "h.4.ffn.w3",
                             "h.2.experts.1.w3",
                             "h.2.experts.1.w2",
                             "h.4.experts.0.w1"}) {
    CAPTURE(module);
    check_gradients(kGemma4, {.rank = 2, .alpha = 8, .target_modules = {module}}, 1);
  }
}

TEST_CASE(
    "gradients are right with DoRA through Gemma 4's forms of a layer, for readers of keys and inputs") {
  check_gradients(kGemma4, {.rank = 3, .alpha = 6, .use_dora = true}, 40, kAllDora);
  check_gradients(kGemma4, {.rank = 3, .alpha = 6, .use_dora = true, .freeze_a = true}, 40, kAllDora);
  for (const char* module : {"to_inputs", "h.1.attn.key", "h.3.attn.query", "h.4.attn.query",
                             "h.4.per_layer_projection", "h.2.ffn.w3", "h.2.experts.1.w3"}) {
    CAPTURE(module);
    check_gradients(kGemma4, {.rank = 2, .alpha = 3, .use_dora = true, .target_modules = {module}}, 1);
  }
}

TEST_CASE("gradients are right below parallel blocks behind two norms") {
  ToyLora toy({.rank = 3, .alpha = 6, .target_modules = {"h.0.attn.dense"}}, fp32_policy(), {},
              two_parallel_layers());
  const at::Tensor& values = toy.adapters.store().all_values();
  const std::vector<nn::Batch> batches{labelled(kSequences)};
  const at::Tensor gradient = toy.gradients(batches).second;
  const at::Tensor start = values.clone(), direction = gradient / gradient.norm();
  const auto loss_at = [&](double step) {
    values.copy_(start + step * direction);
    toy.adapters.store().refresh_compute();
    return toy.gradients(batches).first.item<double>();
  };
  constexpr double kStep = 0.02;  // the sum's rounding in fp32 by it is far below a percent of the slope
  const double slope = (loss_at(kStep) - loss_at(-kStep)) / (2 * kStep);
  CHECK(slope == Approx(gradient.norm().item<double>()).epsilon(0.01));
}

TEST_CASE("gradients are right with DoRA, its norms taken as constants, biases left as they are") {
  for (const Family& family : {kToy, kForms}) {
    const std::size_t all = family.spec == kToy.spec ? 21 : 42;
    check_gradients(family, {.rank = 3, .alpha = 6, .use_dora = true}, all);
    check_gradients(family, {.rank = 3, .alpha = 6, .use_dora = true, .freeze_a = true}, all);
  }
  check_gradients(kToy, {.rank = 2, .alpha = 3, .use_dora = true, .target_modules = {"query", "value"}}, 6);
  check_gradients(kForms, {.rank = 2, .alpha = 3, .use_dora = true, .target_modules = {"key", "w2"}}, 14);
}

TEST_CASE("gradients are right with DoRA on the embedding and the head") {
  check_gradients(kToy, {.rank = 2, .alpha = 3, .use_dora = true, .target_modules = {"wte"}}, 1);
  check_gradients(kToy, {.rank = 2, .alpha = 3, .use_dora = true, .target_modules = {"output"}}, 1);
  for (const Family& family : {kToy, kForms}) {
    const std::size_t all = family.spec == kToy.spec ? 23 : 53;
    check_gradients(family, {.rank = 3, .alpha = 6, .use_dora = true, .target_modules = {".*"}}, all,
                    kAllDora);
    check_gradients(family,
                    {.rank = 3, .alpha = 6, .use_dora = true, .freeze_a = true, .target_modules = {".*"}},
                    all, kAllDora);
  }
}

TEST_CASE("of the embedding nothing is subtracted, and its frozen factor has no gradient") {
  for (const bool dora : {false, true}) {
    check_gradients(
        kToy, {.rank = 3, .alpha = 6, .use_dora = dora, .starts_from_base = true, .target_modules = {".*"}},
        23, dora ? kAllDora : kLimit);
  }
  check_gradients(kForms, {.rank = 3, .alpha = 6, .freeze_a = true, .target_modules = {"wte", "key"}}, 6);
}

TEST_CASE("what an adapter began as is subtracted, and has no gradient") {
  check_gradients(kToy, {.rank = 3, .alpha = 6, .starts_from_base = true}, 21);
  check_gradients(kForms, {.rank = 3, .alpha = 6, .use_dora = true, .starts_from_base = true}, 42);
  check_gradients(kToy, {.rank = 2, .alpha = 8, .starts_from_base = true, .target_modules = {"output"}}, 1);
}

TEST_CASE("with A frozen the gradients of B are the same, and A has none") {
  check_gradients(kToy, {.rank = 3, .alpha = 6, .freeze_a = true}, 21);
  check_gradients(kForms, {.rank = 3, .alpha = 6, .freeze_a = true, .target_modules = {"key", "w2"}}, 14);
}

TEST_CASE("gradients are right for an adapter on the embedding, alone and with others") {
  for (const Family& family : {kToy, kForms}) {
    const std::size_t all = family.spec == kToy.spec ? 23 : 53;
    check_gradients(family, {.rank = 3, .alpha = 6, .target_modules = {"wte"}}, 1);
    check_gradients(family, {.rank = 3, .alpha = 6, .target_modules = {".*"}}, all);
  }
  check_gradients(kToy, {.rank = 3, .alpha = 6, .target_modules = {"wte", "h.2.ffn.w3"}}, 2);
}

TEST_CASE("gradients are right for tables that are trained whole") {
  for (const Family& family : {kToy, kForms}) {
    for (const std::vector<std::string>& saved :
         {std::vector<std::string>{"wte"}, {"output"}, {"wte", "output"}}) {
      check_gradients(family, {.rank = 3, .alpha = 6, .target_modules = {"w2"}, .modules_to_save = saved},
                      family.spec == kToy.spec ? 3 : 9);
    }
  }
}

TEST_CASE("a table that the head shares is trained for both ends, or each copy alone") {
  const Family tied{[] {
                      nn::CausalLMSpec spec = toy_spec();
                      spec.shape.tied_head = true;
                      return spec;
                    },
                    toy_logits};
  for (const bool together : {true, false}) {
    for (const std::vector<std::string>& saved :
         {std::vector<std::string>{"wte"}, {"output"}, {"wte", "output"}}) {
      CAPTURE(together, saved);
      check_gradients(tied,
                      {.rank = 3,
                       .alpha = 6,
                       .target_modules = {"w2"},
                       .modules_to_save = saved,
                       .ensure_weight_tying = together},
                      3);
    }
  }
}

TEST_CASE("ranks and scales by pattern reach the operators") {
  check_gradients(
      kToy, {.rank = 3, .alpha = 6, .rank_pattern = {{"key", 1}, {"h.1.*", 5}}, .alpha_pattern = {{"w2", 1}}},
      21);
}

TEST_CASE("gradients add up over micro-batches, however the examples are grouped") {
  for (const double dropout : {0.0, 0.3}) {
    CAPTURE(dropout);
    ToyLora toy({.rank = 3, .alpha = 6, .dropout = dropout});
    const auto together = toy.gradients({labelled(kSequences)});
    const auto apart =
        toy.gradients({labelled({kSequences[0]}, 0), labelled({kSequences[1], kSequences[2]}, 1),
                       labelled({kSequences[3]}, 3)});
    CHECK(apart.first.item<double>() == Approx(together.first.item<double>()).epsilon(1e-6));
    CHECK(relative_error(apart.second, together.second) < 1e-5);
  }
}

TEST_CASE("dropout acts in training alone, repeats with its step and changes with it") {
  ToyLora toy({.rank = 3, .alpha = 6, .dropout = 0.3});
  const nn::Batch batch = labelled(kSequences);
  const auto first = toy.gradients({batch}, 1, 4), again = toy.gradients({batch}, 1, 4);
  CHECK(at::equal(first.first, again.first));
  CHECK(at::equal(first.second, again.second));
  CHECK_FALSE(at::equal(first.second, toy.gradients({batch}, 1, 5).second));

  const double without = toy.model.token_nll({.batch = batch}).sum().item<double>();
  CHECK(first.first.item<double>() != Approx(without).epsilon(1e-4));
  ToyLora plain({.rank = 3, .alpha = 6});
  CHECK(without == Approx(plain.model.token_nll({.batch = batch}).sum().item<double>()).epsilon(1e-6));
}
