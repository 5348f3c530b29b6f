// LoRA on modules that hold several parts of a group: one A and one B, whose rows compute in group order.
#include <ATen/ATen.h>

#include <stdexcept>

#include "models/toy_fused.h"
#include "nn/reorder_rows.h"
#include "support/catch.h"
#include "support/toy_lora.h"

using namespace lorikeet;
using namespace lorikeet::test;
using Names = std::vector<std::string>;

namespace {

const peft::LoraAdapters::Module& module_of(const ToyLora& toy, const std::string& name) {
  for (const auto& module : toy.adapters.modules()) {
    if (module.name == name) return module;
  }
  throw std::out_of_range(name);
}

ToyLora fused_toy(const Names& targets) {
  return ToyLora({.rank = 3, .alpha = 6, .target_modules = targets}, fp32_policy(), {}, fused_toy_spec());
}

// Values of a fused module's B, in module order.
at::Tensor b_in_module_order(const ToyLora& toy, const std::string& name, bool gradient = false) {
  const auto& module = module_of(toy, name);
  const peft::AdapterStore& store = toy.adapters.store();
  return nn::to_module_order(gradient ? store.gradient(module.b) : store.value(module.b),
                             store.segment(module.b).order);
}

}  // namespace

TEST_CASE("a fused module is matched by its own name and has one A and one B") {
  const ToyLora toy = fused_toy({"qkv", "h.1.ffn.w13"});
  Names names;
  for (const auto& module : toy.adapters.modules()) names.push_back(module.name);
  CHECK(names == Names{"transformer.h.0.attn.qkv", "transformer.h.1.attn.qkv", "transformer.h.1.ffn.w13",
                       "transformer.h.2.attn.qkv"});
  const peft::AdapterStore& store = toy.adapters.store();
  CHECK(store.size() == 8);
  const auto& module = toy.adapters.modules()[0];
  CHECK(store.segment(module.a).name == "transformer.h.0.attn.qkv.lora_A.weight");
  CHECK(store.segment(module.a).shape == std::vector<std::int64_t>{3, 24});
  CHECK(store.segment(module.a).order.is_identity());
  CHECK(store.segment(module.b).shape == std::vector<std::int64_t>{64, 3});
  CHECK((store.segment(module.b).order == nn::RowOrder{2, {2, 1, 1}, 8}));
  CHECK(fused_toy({"all-linear"}).adapters.modules().size() == 12);
}

TEST_CASE("an adapter on an interleaved module computes what separate modules with a common A do") {
  struct Fused {
    std::string name;
    Names parts;
    std::vector<std::int64_t> sizes;
    std::int64_t groups;
  };
  const std::vector<Fused> modules{{"transformer.h.0.attn.qkv", {"query", "key", "value"}, {32, 16, 16}, 2},
                                   {"transformer.h.1.attn.qkv", {"query", "key", "value"}, {32, 16, 16}, 1},
                                   {"transformer.h.2.attn.qkv", {"query", "key", "value"}, {32, 16, 16}, 2},
                                   {"transformer.h.0.ffn.w13", {"w1", "w3"}, {20, 20}, 20},
                                   {"transformer.h.1.ffn.w13", {"w1", "w3"}, {20, 20}, 4},
                                   {"transformer.h.2.ffn.w13", {"w1", "w3"}, {20, 20}, 1}};
  ToyLora separate({.rank = 3, .alpha = 6, .target_modules = {"query", "key", "value", "w1", "w3"}});
  ToyLora fused = fused_toy({"qkv", "w13"});
  fill(fused.model, fuse(separate.state, fused_toy_spec()));
  const auto part_name = [](const Fused& module, const std::string& part) {
    return module.name.substr(0, module.name.rfind('.') + 1) + part;
  };
  peft::AdapterStore& store = separate.adapters.store();
  for (const Fused& module : modules) {
    const auto b = split_rows(b_in_module_order(fused, module.name), module.sizes, module.groups);
    for (std::size_t i = 0; i < module.parts.size(); ++i) {
      const auto& part = module_of(separate, part_name(module, module.parts[i]));
      store.value(part.a).copy_(fused.adapters.store().value(module_of(fused, module.name).a));
      store.value(part.b).copy_(b[i]);
    }
  }
  store.refresh_compute();

  const nn::Batch batch = labelled(toy_prompts());
  const auto expected = separate.gradients({batch}), found = fused.gradients({batch});
  CHECK(found.first.item<double>() == Approx(expected.first.item<double>()).epsilon(1e-6));
  for (const Fused& module : modules) {
    CAPTURE(module.name);
    const auto gradients =
        split_rows(b_in_module_order(fused, module.name, true), module.sizes, module.groups);
    at::Tensor sum_of_a = at::zeros({3, 24});
    for (std::size_t i = 0; i < module.parts.size(); ++i) {
      const auto& part = module_of(separate, part_name(module, module.parts[i]));
      CHECK(relative_error(gradients[i], store.gradient(part.b)) < 1e-5);
      sum_of_a += store.gradient(part.a);
    }
    CHECK(relative_error(fused.adapters.store().gradient(module_of(fused, module.name).a), sum_of_a) < 1e-5);
  }
}
