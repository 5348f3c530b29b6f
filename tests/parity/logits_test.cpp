// fp32 logits against those that transformers gave (tests/parity/make_model_goldens.py), and proof that the
// tolerance would see a wrong model.
#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>

#include <cmath>

#include "nn/batch.h"
#include "parity/golden_model.h"
#include "support/catch.h"
#include "support/tolerance.h"

using namespace lorikeet;
using namespace lorikeet::test;

namespace {

constexpr double kLimit = 1e-5;
constexpr double kWrong = 1e-2;  // a thousand times the limit

const std::vector<std::string> kVariants = {"plain", "llama3-rope", "linear-rope-transformers-4", "tied",
                                            "biases-head-dim"};

std::vector<std::vector<std::int32_t>> sequences() {
  std::vector<std::vector<std::int32_t>> all;
  for (const Json& line : golden_lines("llama/sequences.jsonl")) {
    all.emplace_back();
    for (const Json& id : line.array()) all.back().push_back(static_cast<std::int32_t>(id.integer()));
  }
  return all;
}

// Distance of our logits, all sequences packed into one batch, from transformers' of one at a time.
double logits_distance(const std::string& variant, const Mistake& mistake = {}) {
  GoldenModel golden("llama/" + variant, std::nullopt, config::PrecisionPreset::kFp32, mistake);
  const nn::Batch batch = nn::pack_sequences(sequences(), {}, at::kCPU);
  const at::NoGradGuard no_grad;
  return relative_distance(golden.model().logits({.batch = batch}),
                           golden_tensor("llama/" + variant + "/logits.safetensors", "logits"));
}

// Replaces an entry of config.json's member `object`.
Mistake replaced(const std::string& object, const std::string& key, const Json& value) {
  return {.config = [=](Json& config) {
    Json inner = *config.find(object);
    inner.set(key, value);
    config.set(object, inner);
  }};
}

// The rotary settings `object` of config.json with nothing but their base.
Mistake unscaled(const std::string& object) {
  return {.config = [=](Json& config) {
    Json inner(Json::Object{});
    if (const Json* theta = config.find(object)->find("rope_theta")) inner.set("rope_theta", *theta);
    config.set(object, inner);
  }};
}

Mistake every_attention(const std::function<void(ops::AttentionOptions&)>& change) {
  return {.spec = [=](nn::CausalLMSpec& spec) {
    for (auto& layer : spec.layers) change(layer.attention.options);
  }};
}

}  // namespace

TEST_CASE("the logits of every golden checkpoint equal transformers'") {
  for (const auto& variant : kVariants) {
    CAPTURE(variant);
    CHECK(logits_distance(variant) < kLimit);
  }
}

TEST_CASE("a wrong rotary base is far outside the logits' tolerance") {
  CHECK(logits_distance("plain", replaced("rope_parameters", "rope_theta", 500000.0)) > kWrong);
  CHECK(logits_distance("linear-rope-transformers-4",
                        {.config = [](Json& config) { config.set("rope_theta", 500000.0); }}) > kWrong);
}

TEST_CASE("a wrong rotary scaling is far outside the logits' tolerance") {
  for (const auto& [variant, object] :
       {std::pair{"llama3-rope", "rope_parameters"}, {"linear-rope-transformers-4", "rope_scaling"}}) {
    CAPTURE(variant);
    CHECK(logits_distance(variant, unscaled(object)) > kWrong);
    CHECK(logits_distance(variant, replaced(object, "factor", 2.0)) > kWrong);
  }
  CHECK(logits_distance("llama3-rope", replaced("rope_parameters", "high_freq_factor", 2.0)) > kWrong);
}

TEST_CASE("a missing causal mask or a wrong attention scale is far outside the logits' tolerance") {
  CHECK(logits_distance("plain", every_attention([](auto& options) { options.causal = false; })) > kWrong);
  // hidden_size by heads instead of head_dim
  CHECK(logits_distance("biases-head-dim",
                        every_attention([](auto& options) { options.scale = 1 / std::sqrt(8.0); })) > kWrong);
}
