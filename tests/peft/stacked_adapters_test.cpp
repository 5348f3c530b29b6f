// Adapters on experts' slices of parameters that hold all of them.
#include <ATen/ATen.h>

#include <algorithm>
#include <stdexcept>

#include "base/file.h"
#include "io/safetensors.h"
#include "peft/adapter_arithmetic.h"
#include "peft/adapter_file.h"
#include "peft/stacked_factors.h"
#include "peft/weight_updates.h"
#include "support/catch.h"
#include "support/error_text.h"
#include "support/paths.h"
#include "support/toy_lora.h"

using namespace lorikeet;
using namespace lorikeet::peft;
using namespace lorikeet::test;
using Catch::Contains;

namespace {

// Of the toy's mixture: three experts of 24 to 10 and back.
const std::string kExperts = "transformer.h.4.ffn.experts.",
                  kFile = "base_model.model.transformer.h.4.ffn.experts.";
constexpr std::int64_t kCount = 3, kHidden = 24, kWidth = 10, kRank = 2;

nn::CausalLMSpec mixture_spec(const nn::ExpertStacks& stacks = {}) {
  nn::CausalLMSpec spec = toy_forms_spec();
  spec.layers.at(4).experts->stacks = stacks;
  return spec;
}

LoraConfig on_parameters(const std::vector<std::string>& names,
                         const std::vector<std::string>& modules = {}) {
  return {.rank = kRank, .alpha = 6, .target_modules = modules, .target_parameters = names};
}

const LoraConfig kBoth = on_parameters({"experts.gate_up_proj", "experts.down_proj"});

std::map<std::string, at::Tensor> tensors_in(const std::filesystem::path& folder) {
  const auto file = io::SafetensorsFile::open(folder / "adapter_model.safetensors");
  std::map<std::string, at::Tensor> tensors;
  for (const io::TensorView& view : file.tensors()) {
    at::Tensor tensor = at::empty(view.shape);
    std::copy(view.bytes.begin(), view.bytes.end(), static_cast<char*>(tensor.mutable_data_ptr()));
    tensors[view.name] = tensor;
  }
  return tensors;
}

const LoraAdapters::Module& module_of(const ToyLora& toy, const std::string& name) {
  for (const auto& module : toy.adapters.modules()) {
    if (module.name == name) return module;
  }
  throw std::out_of_range(name);
}

at::Tensor logits(const nn::CausalLM& model) {
  return model.logits({.batch = nn::pack_sequences(toy_prompts(), {}, at::kCPU)});
}

}  // namespace

TEST_CASE(
    "a parameter's name gives each expert one A and one B for gate and up together, and such for down") {
  const ToyLora toy(kBoth, fp32_policy(), {}, mixture_spec());
  REQUIRE(toy.adapters.modules().size() == 2 * kCount);
  const AdapterStore& store = toy.adapters.store();
  for (std::int64_t e = 0; e < kCount; ++e) {
    const auto& up = module_of(toy, kExperts + std::to_string(e) + ".gate_up_proj");
    CHECK(store.segment(up.a).shape == std::vector<std::int64_t>{kRank, kHidden});
    CHECK(store.segment(up.b).shape == std::vector<std::int64_t>{2 * kWidth, kRank});
    CHECK(up.parts.size() == 2);
    CHECK(up.scale == 3);
    const auto& down = module_of(toy, kExperts + std::to_string(e) + ".down_proj");
    CHECK(store.segment(down.a).shape == std::vector<std::int64_t>{kRank, kWidth});
    CHECK(store.segment(down.b).shape == std::vector<std::int64_t>{kHidden, kRank});
  }
  CHECK_NOTHROW(toy.adapters.require_matches());
}

TEST_CASE("ranks and alphas go by a parameter's name, and what narrows modules doesn't narrow parameters") {
  LoraConfig config = on_parameters({"gate_up_proj", "down_proj"}, {"dense"});
  config.rank_pattern = {{"experts.down_proj", 5}};
  config.alpha_pattern = {{R"(.*\.gate_up_proj)", 8}};
  config.exclude_modules = {"dense"};
  const ToyLora toy(config, fp32_policy(), {}, mixture_spec());
  CHECK(toy.adapters.modules().size() == 2 * kCount);
  CHECK(toy.adapters.store().segment(module_of(toy, kExperts + "1.down_proj").a).shape.at(0) == 5);
  CHECK(module_of(toy, kExperts + "1.gate_up_proj").scale == 4);
}

TEST_CASE(
    "both factors compute what adapters on the modules with the same A do, and A's gradient is their sum") {
  const nn::CausalLMSpec spec = mixture_spec();
  ToyLora stacked(on_parameters({"gate_up_proj"}), fp32_policy(), {}, spec);
  ToyLora apart(LoraConfig{.rank = kRank,
                           .alpha = 6,
                           .target_modules = {"experts.0.w1", "experts.0.w3", "experts.1.w1", "experts.1.w3",
                                              "experts.2.w1", "experts.2.w3"}},
                fp32_policy(), {}, spec);
  AdapterStore &all = stacked.adapters.store(), &each = apart.adapters.store();
  const auto for_each_part = [&](const auto& f) {
    for (const auto& own : stacked.adapters.modules()) {
      std::int64_t row = 0;
      for (const nn::Module& part : own.parts) {
        f(own, module_of(apart, part.name), row);
        row += part.out_features;
      }
    }
  };
  for_each_part([&](const auto& own, const auto& other, std::int64_t row) {
    each.value(other.a).copy_(all.value(own.a));
    each.value(other.b).copy_(all.value(own.b).narrow(0, row, kWidth));
  });
  each.refresh_compute();
  CHECK(relative_error(logits(stacked.model), logits(apart.model)) < 1e-6);
  const std::vector<nn::Batch> batches{labelled(toy_prompts())};
  stacked.gradients(batches);
  apart.gradients(batches);
  std::map<std::string, at::Tensor> sums;
  for_each_part([&](const auto& own, const auto& other, std::int64_t row) {
    CHECK(relative_error(all.gradient(own.b).narrow(0, row, kWidth), each.gradient(other.b)) < 1e-5);
    at::Tensor& sum = sums[own.name];
    sum = sum.defined() ? sum + each.gradient(other.a) : each.gradient(other.a).clone();
  });
  for (const auto& own : stacked.adapters.modules())
    CHECK(relative_error(all.gradient(own.a), sums.at(own.name)) < 1e-5);
}

TEST_CASE(
    "a file has one A and one B a parameter, ranks before experts in B's columns, and rows as the "
    "parameter's") {
  for (const bool interleaved : {false, true}) {
    CAPTURE(interleaved);
    const TemporaryFolder folder;
    const nn::CausalLMSpec spec = mixture_spec({.interleaved = interleaved});
    const ToyLora toy(kBoth, fp32_policy(), {}, spec);
    save_adapter(folder.path(), toy.adapters, "base");
    const auto tensors = tensors_in(folder.path());
    REQUIRE(tensors.size() == 4);
    const AdapterStore& store = toy.adapters.store();
    const at::Tensor &a = tensors.at(kFile + "base_layer.lora_A.weight"),
                     &b = tensors.at(kFile + "base_layer.lora_B.weight");
    CHECK(a.sizes() == at::IntArrayRef({kCount * kRank, kHidden}));
    CHECK(b.sizes() == at::IntArrayRef({2 * kWidth, kRank * kCount}));
    CHECK(tensors.at(kFile + "lora_A.weight").sizes() == at::IntArrayRef({kCount * kRank, kWidth}));
    for (std::int64_t e = 0; e < kCount; ++e) {
      const auto& up = module_of(toy, kExperts + std::to_string(e) + ".gate_up_proj");
      for (std::int64_t k = 0; k < kRank; ++k) {
        CHECK(at::equal(a[e * kRank + k], store.value(up.a)[k]));
        for (std::int64_t i = 0; i < kWidth; ++i) {
          const at::Tensor own = store.value(up.b);
          CHECK(at::equal(b[interleaved ? 2 * i : i][k * kCount + e], own[i][k]));
          CHECK(at::equal(b[interleaved ? 2 * i + 1 : kWidth + i][k * kCount + e], own[kWidth + i][k]));
        }
      }
    }
    const LoraConfig config = load_adapter_config(folder.path());
    CHECK(config.target_modules.empty());
    CHECK(config.target_parameters == std::vector<std::string>{"experts.down_proj", "experts.gate_up_proj"});
    ToyLora other(config, fp32_policy(), {}, spec);
    CHECK_NOTHROW(other.adapters.require_matches());
    load_adapter(folder.path(), other.adapters);
    CHECK(at::equal(other.adapters.store().values(), store.values()));
    CHECK(adapter_fingerprint(folder.path(), other.adapters) ==
          adapter_fingerprint(folder.path(), toy.adapters));
  }
}

TEST_CASE("one parameter alone is the only wrapper in its file") {
  const TemporaryFolder folder;
  const ToyLora toy(on_parameters({"gate_up_proj"}, {"dense"}), fp32_policy(), {}, mixture_spec());
  save_adapter(folder.path(), toy.adapters, "base");
  CHECK(tensors_in(folder.path()).contains(kFile + "lora_B.weight"));
  ToyLora other(load_adapter_config(folder.path()), fp32_policy(), {}, mixture_spec());
  load_adapter(folder.path(), other.adapters);
  CHECK(at::equal(other.adapters.store().values(), toy.adapters.store().values()));
}

TEST_CASE("a base with the updates of parameters added computes what base and adapter do") {
  for (const bool interleaved : {false, true}) {
    nn::CausalLMSpec spec = mixture_spec({.interleaved = interleaved});
    const ToyLora toy(kBoth, fp32_policy(), {}, spec);
    const auto updates = weight_updates(toy.adapters);
    CHECK(updates.size() == 3 * kCount);
    State state = toy.state;
    for (const auto& [name, update] : updates) state.at(name) = update.applied_to(state.at(name));
    nn::FrozenFactory factory(fp32_policy());
    nn::CausalLM merged(spec, factory);
    fill(merged, state);
    CHECK(relative_error(logits(merged), logits(toy.model)) < 1e-5);
  }
}

TEST_CASE("a module and the parameter that holds its weight can't both be targets") {
  const auto made = [](const std::vector<std::string>& modules) {
    return error_text(
        [&] { ToyLora(on_parameters({"gate_up_proj"}, modules), fp32_policy(), {}, mixture_spec()); });
  };
  CHECK_THAT(
      made({"w1"}),
      Contains("[lora.target_parameters] 'transformer.h.4.ffn.experts.gate_up_proj' holds the weight of "
               "'transformer.h.4.ffn.experts.0.w1', which target_modules names too"));
  CHECK(made({"w2", "shared.w1"}) == "no error");  // the other parameter's, and a shared expert's
}

TEST_CASE("a name that matches no parameter is an error that lists those there are") {
  const auto unused = [](const nn::CausalLMSpec& spec, const std::string& name) {
    return error_text([&] {
      ToyLora(on_parameters({name}, {"dense"}), fp32_policy(), {}, spec).adapters.require_matches();
    });
  };
  CHECK_THAT(
      unused(mixture_spec(), "experts.gate_up_poj"),
      Contains(
          "[lora.target_parameters] 'experts.gate_up_poj' matches no parameter of this model's experts") &&
          Contains("it has ffn.experts.down_proj, ffn.experts.gate_up_proj"));
  CHECK_THAT(unused(toy_spec(), "gate_up_proj"), Contains("it has none"));
}

TEST_CASE("experts that only stacks have names for get adapters by no module's") {
  const nn::CausalLMSpec spec = mixture_spec({.only = true});
  const ToyLora toy({.rank = 2, .target_modules = {"shared.w2", "dense"}}, fp32_policy(), {}, spec);
  CHECK_NOTHROW(toy.adapters.require_matches());
  CHECK_THAT(error_text([&] {
               ToyLora({.rank = 2, .target_modules = {"experts.0.w2"}}, fp32_policy(), {}, spec)
                   .adapters.require_matches();
             }),
             Contains("'experts.0.w2' matches no module"));
  CHECK(ToyLora(kBoth, fp32_policy(), {}, spec).adapters.modules().size() == 2 * kCount);
}

TEST_CASE("without its base a file's parameters are a module for each expert, and are written as they were") {
  const TemporaryFolder folder, again;
  LoraConfig config = kBoth;
  config.target_modules = {"dense"};
  config.rank_pattern = {{"down_proj", 3}};
  const ToyLora toy(config, fp32_policy(), {}, mixture_spec({.interleaved = true}));
  save_adapter(folder.path(), toy.adapters, "base");
  const AdapterContents contents = read_adapter_contents(folder.path());
  CHECK(contents.parameters() == std::vector<std::string>{kExperts + "down_proj", kExperts + "gate_up_proj"});
  const auto& down = module_of(toy, kExperts + "2.down_proj");
  const AdapterModule& own = contents.modules.at(kExperts + "2.down_proj");
  CHECK(own.update.rank() == 3);
  CHECK(own.update.scale == 2);
  CHECK(at::equal(own.update.a, toy.adapters.store().value(down.a).to(at::kDouble)));
  CHECK(at::equal(own.update.b, toy.adapters.store().value(down.b).to(at::kDouble)));
  write_adapter_contents(again.path(), contents);
  const auto before = tensors_in(folder.path()), after = tensors_in(again.path());
  REQUIRE(before.size() == after.size());
  for (const auto& [name, tensor] : before) CHECK(at::equal(tensor, after.at(name)));
}

TEST_CASE("averages and smaller ranks keep one rank for all experts of a parameter") {
  const TemporaryFolder folder, written;
  ToyLora toy(kBoth, fp32_policy(), {}, mixture_spec());
  save_adapter(folder.path(), toy.adapters, "base");
  const AdapterContents one = read_adapter_contents(folder.path());
  const AdapterContents sum = weighted_sum({one, one}, {0.5, 0.5});
  CHECK(sum.modules.at(kExperts + "1.gate_up_proj").update.rank() == 2 * kRank);
  // Of an expert that has one direction alone a share needs rank 1, of the others more.
  AdapterContents uneven = one;
  uneven.modules.at(kExperts + "1.gate_up_proj").update.b.select(1, 1).zero_();
  const AdapterContents smaller = shrunk(uneven, std::nullopt, 0.999999).adapter;
  CHECK(smaller.modules.at(kExperts + "1.gate_up_proj").update.rank() == kRank);
  CHECK(shrunk(uneven, 1, std::nullopt).adapter.modules.at(kExperts + "2.down_proj").update.rank() == 1);
  write_adapter_contents(written.path(), sum);
  const AdapterContents read = read_adapter_contents(written.path());
  CHECK(read.config.rank == 2 * kRank);
  CHECK(at::equal(read.modules.at(kExperts + "2.down_proj").update.a,
                  sum.modules.at(kExperts + "2.down_proj").update.a));
}

TEST_CASE("adapters on modules of experts and on their parameters have no sum") {
  const TemporaryFolder folder;
  ToyLora toy(kBoth, fp32_policy(), {}, mixture_spec());
  save_adapter(folder.path(), toy.adapters, "base");
  const AdapterContents stacked = read_adapter_contents(folder.path());
  AdapterContents apart = stacked;
  apart.modules = {{kExperts + "0.w2", stacked.modules.at(kExperts + "0.down_proj")}};
  apart.modules.begin()->second.slice.reset();
  apart.config.target_modules = {"w2"};
  apart.config.target_parameters.clear();
  CHECK_THAT(error_text([&] { weighted_sum({stacked, apart}, {1, 1}); }),
             Contains("expected adapters on experts of one form, got some on '" + kExperts + "0.w2'"));
}

TEST_CASE("a file whose A is no whole number of experts is refused") {
  const TemporaryFolder folder;
  const ToyLora toy(kBoth, fp32_policy(), {}, mixture_spec());
  save_adapter(folder.path(), toy.adapters, "base");
  std::string text = read_file(folder.path() / "adapter_config.json");
  text.replace(text.find("\"r\": 2"), 6, "\"r\": 4");
  write_file_atomic(folder.path() / "adapter_config.json", text);
  CHECK_THAT(error_text([&] { read_adapter_contents(folder.path()); }),
             Contains("has no lora_A [experts * 4, in] with a lora_B [out, 4 * experts]"));
}
