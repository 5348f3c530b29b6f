#include "plan/card_time.h"

#include "models/registry.h"
#include "models/toy_family.h"
#include "peft/lora.h"
#include "plan/micro_auto.h"
#include "support/catch.h"
#include "support/toy_lora.h"

using namespace lorikeet;
using namespace lorikeet::plan;
using config::BaseStorage;
using ops::AttentionKernel;

namespace {

constexpr double kPeak = 989.4e12, kMemory = 4.8e12;  // an H200's data sheet
constexpr int kHopper = 90;

struct Sizes {
  std::int64_t hidden, layers, heads, kv_heads, head_dim, intermediate, vocabulary;
};
constexpr Sizes kQwen06B{1024, 28, 16, 8, 128, 3072, 151936};
constexpr Sizes kQwen17B{2048, 28, 16, 8, 128, 6144, 151936};
constexpr Sizes kQwen4B{2560, 36, 32, 8, 128, 9728, 151936};
constexpr Sizes kLlama8B{4096, 32, 32, 8, 128, 14336, 128256};

nn::CausalLMSpec spec_of(const Sizes& sizes) {
  Json json;
  json.set("model_type", "llama")
      .set("hidden_size", sizes.hidden)
      .set("num_hidden_layers", sizes.layers)
      .set("num_attention_heads", sizes.heads)
      .set("num_key_value_heads", sizes.kv_heads)
      .set("head_dim", sizes.head_dim)
      .set("intermediate_size", sizes.intermediate)
      .set("vocab_size", sizes.vocabulary)
      .set("max_position_embeddings", 40960)
      .set("rms_norm_eps", 1e-6)
      .set("rope_theta", 1e6)
      .set("tie_word_embeddings", false);
  return models::model_spec(JsonView(json, "config"));
}

precision::Policy policy_of(const config::PrecisionSettings& settings = {}) {
  return precision::resolve(settings);
}

// A step of 16,384 tokens in rows of one length, each with a label, as benchmarks/card/run.py makes them.
constexpr double kTokens = 16384;

struct Step {
  CardLoad load;
  double flops = 0;
};

Step step_of(const nn::CausalLMSpec& spec, std::int64_t length, const precision::Policy& policy = policy_of(),
             peft::LoraConfig lora = {.rank = 16, .alpha = 32}) {
  peft::LoraAdapters adapters(std::move(lora), policy, /*seed=*/1);
  peft::LoraFactory factory(policy, adapters);
  const nn::CausalLM model(spec, factory);
  const auto tokens = static_cast<std::int64_t>(kTokens);
  const train::StepSize size{tokens, tokens,
                             tokens / length * train::AttentionSquares(spec.layers, spec.shape).of(length)};
  return {card_load(spec, adapters, size, policy),
          train::step_flops(spec.shape, train::adapter_size(adapters, spec), size)};
}

Step step_of(const Sizes& sizes, std::int64_t length, const precision::Policy& policy = policy_of(),
             peft::LoraConfig lora = {.rank = 16, .alpha = 32}) {
  return step_of(spec_of(sizes), length, policy, std::move(lora));
}

double tokens_per_second(const Sizes& sizes, std::int64_t length, AttentionKernel kernel, double turns) {
  const CardRates rates = card_rates(kPeak, kMemory, kHopper, kernel);
  const double layers = static_cast<double>(sizes.layers);
  return kTokens /
         (card_seconds(step_of(sizes, length).load, rates) + turns * 2 * layers * kCardSecondsPerLayer);
}

}  // namespace

TEST_CASE("steps take what they took on an H200") {
  // Tokens a second of benchmarks/results/card.md, to which nine constants were fitted: six are met within
  // 1.2%, 4B's within 2.5%, 0.6B's with FlashAttention within 3.5%.
  const auto measured = [](double value) { return Approx(value).epsilon(0.04); };
  const auto cudnn = AttentionKernel::kCudnn, flash = AttentionKernel::kFlash;
  CHECK(tokens_per_second(kQwen06B, 2048, cudnn, 4) == measured(100730));
  CHECK(tokens_per_second(kQwen06B, 2048, cudnn, 2) == measured(112122));
  CHECK(tokens_per_second(kQwen06B, 2048, cudnn, 1) == measured(118574));
  CHECK(tokens_per_second(kQwen06B, 2048, flash, 4) == measured(84306));
  CHECK(tokens_per_second(kQwen4B, 2048, cudnn, 2) == measured(26845));
  CHECK(tokens_per_second(kLlama8B, 4096, cudnn, 4) == measured(16244));
  CHECK(tokens_per_second(kLlama8B, 4096, cudnn, 2) == measured(16614));
  CHECK(tokens_per_second(kLlama8B, 4096, flash, 4) == measured(14731));
}

TEST_CASE("where layers' attention has several kernels, the rate is that of all operations by their time") {
  const double flash = card_rates(kPeak, kMemory, kHopper, AttentionKernel::kFlash).attention;
  const double efficient = card_rates(kPeak, kMemory, kHopper, AttentionKernel::kEfficient).attention;
  REQUIRE(flash != Approx(efficient));
  const auto mixed = [&](double of_flash, double of_efficient) {
    return card_rates(kPeak, kMemory, kHopper,
                      {{AttentionKernel::kFlash, of_flash}, {AttentionKernel::kEfficient, of_efficient}})
        .attention;
  };
  CHECK(mixed(3, 1) == Approx(4 / (3 / flash + 1 / efficient)));
  CHECK(mixed(2, 0) == Approx(flash));
  CHECK(mixed(0, 0) > 0);
}

TEST_CASE("with products in fp8 forward's move to their rate, and backward decodes") {
  const auto policy = policy_of({.base_storage = BaseStorage::kF8, .matmul = config::Matmul::kFp8});
  const Step plain = step_of(kLlama8B, 4096), fp8 = step_of(kLlama8B, 4096, policy);
  const nn::CausalLMSpec spec = spec_of(kLlama8B);
  const auto parameters = static_cast<double>(spec.shape.layer_linear_parameters);
  // But for the last layer's, whose rows all have labels here, all are of every token.
  CHECK(fp8.load.float8_flops == Approx(2 * parameters * kTokens));
  CHECK(fp8.load.float8_flops + fp8.load.product_flops == Approx(plain.load.product_flops));
  CHECK(decoded_bytes(spec, 1, policy) == Approx(3 * parameters));
  CHECK(decoded_bytes(spec, 0.53, policy_of({.base_storage = BaseStorage::kNF4})) ==
        Approx(2.53 * parameters));
  CHECK(decoded_bytes(spec, 2, policy_of()) == 0);

  const CardRates rates = card_rates(kPeak, kMemory, kHopper, AttentionKernel::kCudnn);
  const double turns = 4, layers = 32;
  const double seconds =
      card_seconds(fp8.load, rates) +
      turns * (2 * layers * kCardSecondsPerLayer + decoded_bytes(spec, 1, policy) / rates.decoding);
  CHECK(kTokens / seconds == Approx(17598).epsilon(0.05));
}

TEST_CASE("the parts are all of a step's operations, and adapters cost memory by their modules' widths") {
  const Step all = step_of(kQwen06B, 2048);
  CHECK(all.load.product_flops + all.load.attention_flops == Approx(all.flops));
  // 3 x 2 x heads x head_dim x s^2 a layer and sequence
  CHECK(all.load.attention_flops == Approx(6.0 * 2048 * 2048 * kTokens * 28));
  const Step few =
      step_of(kQwen06B, 2048, policy_of(), {.rank = 16, .alpha = 32, .target_modules = {"q_proj"}});
  const Step high = step_of(kQwen06B, 2048, policy_of(), {.rank = 64, .alpha = 32});
  CHECK(few.load.moved_bytes < 0.8 * all.load.moved_bytes);
  CHECK(high.load.moved_bytes == all.load.moved_bytes);
  CHECK(high.load.product_flops > all.load.product_flops);
  // DoRA scales each module's output.
  const Step dora = step_of(kQwen06B, 2048, policy_of(), {.rank = 16, .alpha = 32, .use_dora = true});
  const double outputs = 28.0 * (2048 + 2 * 1024 + 1024 + 2 * 3072 + 1024);
  CHECK(dora.load.moved_bytes - all.load.moved_bytes == Approx(2 * 5 * outputs * kTokens));
  const Step fp32 = step_of(kQwen06B, 2048, policy_of({.preset = config::PrecisionPreset::kTf32}));
  CHECK(fp32.load.moved_bytes == Approx(2 * all.load.moved_bytes));
}

TEST_CASE("small models get larger micro-batches on cards that are fast for them") {
  const auto usual = [](const Sizes& sizes, std::optional<double> peak) {
    return usual_micro_tokens(spec_of(sizes).shape, at::kCUDA, peak);
  };
  constexpr double k4090 = 165.2e12;
  CHECK(usual(kQwen06B, kPeak) == 2 * kUsualMicroTokensCuda);
  CHECK(usual(kQwen17B, kPeak) == 2 * kUsualMicroTokensCuda);
  CHECK(usual(kQwen4B, kPeak) == 2 * kUsualMicroTokensCuda);
  CHECK(usual(kLlama8B, kPeak) == kUsualMicroTokensCuda);
  CHECK(usual(kQwen06B, k4090) == kUsualMicroTokensCuda);
  CHECK(usual(kQwen06B, std::nullopt) == kUsualMicroTokensCuda);
  CHECK(usual_micro_tokens(spec_of(kQwen06B).shape, at::kCPU, std::nullopt) == kUsualMicroTokensCpu);
}

TEST_CASE("experts add launches of each, or those that move rows where all are multiplied at once") {
  nn::CausalLMSpec spec = spec_of(kQwen06B);
  CHECK(experts_host_seconds_per_layer(spec, false) == 0);
  CHECK(experts_host_seconds_per_layer(spec, true) == 0);
  CHECK(experts_host_seconds_per_layer({}, false) == 0);
  // Two launches of 10 us for each of 14 experts, in one of 28 layers; then in all.
  const nn::ExpertsSpec experts{
      .hidden_size = 1024, .intermediate_size = 768, .count = 14, .router = {.per_token = 2}};
  spec.layers[5].experts = experts;
  CHECK(experts_host_seconds_per_layer(spec, false) == Approx(10e-6));
  for (nn::DecoderLayerSpec& layer : spec.layers) layer.experts = experts;
  CHECK(experts_host_seconds_per_layer(spec, false) == Approx(28 * 10e-6));
  for (nn::DecoderLayerSpec& layer : spec.layers) layer.experts->router.per_token = 8;
  CHECK(experts_host_seconds_per_layer(spec, false) == Approx(28 * 10e-6));  // some token goes to each
  CHECK(experts_host_seconds_per_layer(spec, true) == Approx(10 * 10e-6));
}

TEST_CASE("attention takes the time of what its heads are filled up by") {
  CardLoad load{.attention_flops = 100};
  CardRates rates{.products = 1, .float8 = 1, .attention = 10, .recurrence = 1, .memory = 1, .decoding = 1};
  CHECK(card_seconds(load, rates) == Approx(10));
  load.attention_filling = 1.2;
  CHECK(card_seconds(load, rates) == Approx(12));
  CHECK(load.flops() == 100);
  const test::ToyLora toy({.rank = 3, .alpha = 6}, test::fp32_policy(), {}, test::toy_latent_spec());
  const train::StepSize size{.tokens = 8, .label_tokens = 6, .attention_squares = 64};
  // Keys of 9 and values of 6, a plain layer of 8 by 4 heads, keys of 7 and values of 11.
  CHECK(card_load(toy.model.spec(), toy.adapters, size, test::fp32_policy()).attention_filling ==
        Approx((9 + 8 + 11) / (7.5 + 8 + 9)));
}

TEST_CASE("recurrences are a part of a step's operations, at a rate of their own") {
  nn::CausalLMSpec spec = spec_of(kQwen06B);
  const double before = step_of(spec, 2048).load.recurrence_flops;
  CHECK(before == 0);
  spec.shape.state_elements = 28 * 16 * 128 * 128;
  const Step step = step_of(spec, 2048);
  CHECK(step.load.recurrence_flops == Approx(3.0 * 7 * 28 * 16 * 128 * 128 * kTokens));
  CHECK(step.load.flops() == Approx(step.flops));
  CHECK(step.load.product_flops == Approx(step_of(kQwen06B, 2048).load.product_flops));
  nn::CausalLMSpec mamba = spec_of(kQwen06B);
  mamba.shape.state_space_elements = 28 * 64 * 128 * 64;
  const Step scan = step_of(mamba, 2048);
  CHECK(scan.load.recurrence_flops == Approx(3.0 * 5 * 28 * 64 * 128 * 64 * kTokens));
  CHECK(scan.load.flops() == Approx(scan.flops));
  const auto seconds = [&](int capability) {
    const CardRates rates = card_rates(kPeak, kMemory, capability, AttentionKernel::kFlash);
    return card_seconds(step.load, rates) - card_seconds(step_of(kQwen06B, 2048).load, rates);
  };
  CHECK(seconds(kHopper) == Approx(step.load.recurrence_flops / (0.02 * kPeak)));
  CHECK(seconds(89) == Approx(step.load.recurrence_flops / (0.15 * kPeak)));
}
