// A dry step makes the tensors of the real one: the same bytes at the same time.
#include <ATen/Parallel.h>

#include "models/toy_fused.h"
#include "ops/dry_run.h"
#include "ops/matmul/matmul.h"
#include "support/catch.h"
#include "support/counted_memory.h"
#include "support/toy_lora.h"

using namespace lorikeet;
using namespace lorikeet::test;

namespace {

std::int64_t real_peak(ToyLora& toy, const nn::Batch& batch) {
  toy.gradients({batch});  // what is made once for all steps
  const CountedMemory counted;
  train::run_micro_step(toy.model, batch, {.checkpointing = toy.checkpointing});
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
                      const precision::Policy& policy, bool checkpointing, const nn::Batch& real,
                      const ops::DryTarget& target) {
  peft::LoraAdapters adapters(config, policy, 0);
  peft::LoraFactory factory(policy, adapters);
  nn::CausalLM model(spec, factory);
  model.store().allocate(at::kMeta);
  adapters.store().allocate(at::kMeta);
  const nn::Batch batch = without_data(real);
  const auto step = [&] { train::run_micro_step(model, batch, {.checkpointing = checkpointing}); };
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
      {.rank = 2, .alpha = 6, .modules_to_save = {"wte"}}};
  precision::Policy bf16 = fp32_policy(), fp16 = fp32_policy();
  bf16.base_storage = bf16.compute = DType::kBF16;
  fp16.base_storage = fp16.compute = DType::kF16;
  const auto check = [&](const nn::CausalLMSpec& spec, const peft::LoraConfig& config,
                         const precision::Policy& policy, ops::HalfProducts products, bool checkpointing) {
    const Products chosen(products);
    ToyLora toy(config, policy, {}, spec);
    toy.checkpointing = checkpointing;
    const ops::DryTarget target{.device = at::kCPU,
                                .native_products = products == ops::HalfProducts::kNative,
                                .threads = at::get_num_threads()};
    CAPTURE(spec.layers.size(), config.dropout, config.rank, policy.compute, products, checkpointing);
    CHECK(dry_peak(spec, config, policy, checkpointing, batch, target) == real_peak(toy, batch));
  };
  for (const auto& spec : {toy_spec(), toy_forms_spec(), fused_toy_spec()}) {
    for (const auto& config : configs) {
      for (const bool checkpointing : {false, true}) {
        check(spec, config, fp32_policy(), ops::HalfProducts::kWidened, checkpointing);
        check(spec, config, fp16, ops::HalfProducts::kWidened, checkpointing);
        for (const auto products : {ops::HalfProducts::kNative, ops::HalfProducts::kWidened})
          check(spec, config, bf16, products, checkpointing);
        precision::Policy nf4 = fp32_policy(), bf16_nf4 = bf16;
        nf4.quantization = bf16_nf4.quantization = precision::Quantization{};
        check(spec, config, nf4, ops::HalfProducts::kWidened, checkpointing);
        for (const auto products : {ops::HalfProducts::kNative, ops::HalfProducts::kWidened})
          check(spec, config, bf16_nf4, products, checkpointing);
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
    for (const auto& spec : {toy_spec(), toy_forms_spec(), fused_toy_spec()}) {
      for (const bool checkpointing : {false, true}) {
        for (const auto& policy : {bf16, nf4, fp32_policy()}) {
          const auto peak = dry_peak(spec, {.rank = 3, .alpha = 6}, policy, checkpointing, batch, gpu);
          CHECK(peak > 0);
          CHECK(peak % 512 == 0);  // as a GPU's allocator counts
        }
      }
    }
  }
}
