// A dry step makes the tensors of the real one: the same bytes at the same time.
#include <ATen/Parallel.h>

#include <optional>
#include <utility>
#include <vector>

#include "models/toy_fused.h"
#include "ops/dry_run.h"
#include "ops/matmul/matmul.h"
#include "parallel/host_weights.h"
#include "support/catch.h"
#include "support/counted_memory.h"
#include "support/reference_ops.h"
#include "support/toy_lora.h"

using namespace lorikeet;
using namespace lorikeet::test;

namespace {

std::vector<nn::CausalLMSpec> every_spec() {
  std::vector<nn::CausalLMSpec> specs = every_toy_spec();
  specs.push_back(fused_toy_spec());
  return specs;
}

std::int64_t real_peak(ToyLora& toy, const nn::Batch& batch) {
  std::optional<parallel::HostWeights> host_weights;
  if (toy.saving.offload.weights) {
    fill(toy.model, toy.state, {}, /*on_host=*/true);
    host_weights.emplace(at::kCPU, toy.model);
  }
  toy.gradients({batch});  // what is made once for all steps
  toy.gradients({batch});  // and what the last one left
  const CountedMemory counted;
  train::run_micro_step(toy.model, batch, {.saving = toy.saving});
  return counted.peak_bytes();
}

nn::Batch without_data(nn::Batch batch) {
  for (at::Tensor* tensor : {&batch.tokens, &batch.position_ids, &batch.sample_ids, &batch.label_rows,
                             &batch.labels, &batch.sequences.cu_seqlens_device}) {
    if (tensor->defined()) *tensor = tensor->to(at::kMeta);
  }
  return batch;
}

std::int64_t dry_peak(const nn::CausalLMSpec& spec, const peft::LoraConfig& config,
                      const precision::Policy& policy, const config::MemorySaving& saving,
                      const nn::Batch& real, const ops::DryTarget& target) {
  peft::LoraAdapters adapters(config, policy, 0);
  peft::LoraFactory factory(policy, adapters);
  nn::CausalLM model(spec, factory);
  model.store().allocate(at::kMeta);
  adapters.store().allocate(at::kMeta);
  std::optional<parallel::HostWeights> host_weights;
  if (saving.offload.weights) host_weights.emplace(at::kMeta, model);
  const nn::Batch batch = without_data(real);
  const auto step = [&] { train::run_micro_step(model, batch, {.saving = saving}); };
  {
    const ops::DryRun first(target);
    step();
  }
  const ops::DryRun run(target);
  step();
  return run.peak().total();
}

struct Products {
  explicit Products(ops::HalfProducts choice) { ops::set_half_products(choice); }
  ~Products() { ops::set_half_products(ops::HalfProducts::kByFeature); }
  Products(const Products&) = delete;
  Products& operator=(const Products&) = delete;
};

}  // namespace

TEST_CASE("a dry step's peak is the real step's, to the byte") {
  std::vector<std::vector<std::int32_t>> sequences(4);
  for (std::size_t s = 0; s < sequences.size(); ++s) {
    for (std::size_t i = 0; i < 20 + 30 * s; ++i)
      sequences[s].push_back(static_cast<std::int32_t>((7 * i + s) % 37));
  }
  const nn::Batch batch = labelled(sequences);
  const peft::LoraConfig configs[] = {
      {.rank = 3, .alpha = 6},
      {.rank = 3, .alpha = 6, .dropout = 0.3},
      {.rank = 3, .alpha = 6, .use_dora = true},
      {.rank = 3, .alpha = 6, .freeze_a = true},
      {.rank = 3, .alpha = 6, .starts_from_base = true},
      {.rank = 2, .alpha = 6, .target_modules = {"query", "w2"}},
      {.rank = 2, .alpha = 6, .target_modules = {".*"}, .modules_to_save = {"output"}},
      {.rank = 2, .alpha = 6, .target_modules = {"wte"}},
      {.rank = 2, .alpha = 6, .use_dora = true, .target_modules = {"wte", "output", "w2"}},
      {.rank = 2, .alpha = 6, .modules_to_save = {"wte"}}};
  precision::Policy bf16 = fp32_policy(), fp16 = fp32_policy();
  bf16.base_storage = bf16.compute = DType::kBF16;
  fp16.base_storage = fp16.compute = DType::kF16;
  const auto check = [&](const nn::CausalLMSpec& spec, const peft::LoraConfig& adapter,
                         const precision::Policy& policy, ops::HalfProducts products,
                         const config::MemorySaving& saving) {
    const Products chosen(products);
    ToyLora toy(adapter, policy, {}, spec);
    toy.saving = saving;
    const ops::DryTarget target{.device = at::kCPU,
                                .native_products = products == ops::HalfProducts::kNative,
                                .threads = at::get_num_threads()};
    CAPTURE(spec.layers.size(), adapter.dropout, adapter.rank, policy.compute, products,
            config::overrides({}, saving));
    const auto peak = dry_peak(spec, adapter, policy, saving, batch, target), real = real_peak(toy, batch);
    // A dry step gives all experts as many rows: what one of them takes for its adapter is then otherwise.
    const auto& modules = toy.adapters.modules();
    const bool of_experts = std::any_of(modules.begin(), modules.end(), [](const auto& module) {
      return module.name.find(".experts.") != std::string::npos;
    });
    CHECK(std::abs(peak - real) <= (of_experts ? real / 50 : 0));
  };
  // In what, and by which products.
  std::vector<std::pair<precision::Policy, ops::HalfProducts>> computations{
      {fp32_policy(), ops::HalfProducts::kWidened},
      {fp16, ops::HalfProducts::kWidened},
      {bf16, ops::HalfProducts::kNative},
      {bf16, ops::HalfProducts::kWidened}};
  for (const precision::Quantization& how :
       {precision::Quantization(precision::FourBits{}), precision::Quantization(precision::Float8{})}) {
    for (auto [policy, products] : {computations[0], computations[2], computations[3]}) {
      policy.quantization = how;
      computations.emplace_back(policy, products);
    }
  }
  const std::vector<nn::CausalLMSpec> specs = every_spec();
  const auto& all_savings = savings();
  for (const auto& config : configs) {
    const bool first = &config == &configs[0];
    for (std::size_t i = 0; i < all_savings.size(); ++i) {
      // Copies are the same whatever the adapter.
      if (all_savings[i].offload.activations && !first && !config.use_dora) continue;
      for (std::size_t j = 0; j < computations.size(); ++j) {
        for (std::size_t k = 0; k < std::size(specs); ++k) {
          // The first adapter with every model, another with one of them at a time: minutes less.
          if (first || (i + j) % std::size(specs) == k)
            check(specs[k], config, computations[j].first, computations[j].second, all_savings[i]);
        }
      }
    }
  }
  // Matrices on the host, two units of them in use.
  using Grade = config::ActivationCheckpointing;
  for (const auto& spec : specs) {
    for (const auto& saving : {config::MemorySaving{Grade::kNone, {.weights = true}},
                               config::MemorySaving{Grade::kFull, {.activations = true, .weights = true}}}) {
      precision::Policy nf4 = bf16;
      nf4.quantization.emplace();
      for (const auto& policy : {fp32_policy(), bf16, nf4})
        check(spec, configs[0], policy, ops::HalfProducts::kWidened, saving);
    }
  }
}

TEST_CASE("a dry step by references has the real one's peak too, and another one than kernels") {
  constexpr std::int64_t kScalars =
      16;  // bytes of numbers that autograd makes on the host, which a dry step has not
  const nn::Batch batch = labelled(toy_prompts());
  const ops::DryTarget target{.device = at::kCPU, .native_products = false, .threads = at::get_num_threads()};
  const Products chosen(ops::HalfProducts::kWidened);
  precision::Policy bf16 = fp32_policy();
  bf16.base_storage = bf16.compute = DType::kBF16;
  precision::Policy nf4 = bf16;
  nf4.quantization.emplace();
  const peft::LoraConfig plain{.rank = 3, .alpha = 6, .dropout = 0.3};
  for (const auto& spec : every_spec()) {
    for (const auto& policy : {fp32_policy(), bf16, nf4}) {
      for (const peft::LoraConfig& config :
           {plain,
            peft::LoraConfig{.rank = 2, .alpha = 6, .use_dora = true, .target_modules = {"wte", "w2"}}}) {
        CAPTURE(spec.layers.size(), policy.compute, policy.quantization.has_value(), config.use_dora);
        const auto kernels = dry_peak(spec, config, policy, {}, batch, target);
        const ReferenceOps references;
        ToyLora toy(config, policy, {}, spec);
        const auto peak = dry_peak(spec, config, policy, {}, batch, target);
        const auto real = real_peak(toy, batch);
        CHECK(peak <= real);
        CHECK(real - peak <= kScalars);
        CHECK(std::abs(peak - kernels) > kScalars);
      }
    }
  }
}

TEST_CASE("a dry step for a GPU runs where there is none") {
  const nn::Batch batch = labelled(toy_prompts());
  precision::Policy bf16 = fp32_policy();
  bf16.base_storage = bf16.compute = DType::kBF16;
  precision::Policy nf4 = bf16;
  nf4.quantization.emplace();
  // Every kernel of attention: FlashAttention, the memory-efficient ones, blocks.
  for (const int capability : {90, 75, 50}) {
    const ops::DryTarget gpu{.device = at::kCUDA, .capability = capability};
    for (const auto& spec : every_spec()) {
      for (const auto& saving : savings()) {
        for (const auto& policy : {bf16, nf4, fp32_policy()}) {
          const auto peak = dry_peak(spec, {.rank = 3, .alpha = 6}, policy, saving, batch, gpu);
          CHECK(peak > 0);
          CHECK(peak % 512 == 0);  // as a GPU's allocator counts
        }
      }
    }
  }
}
