// The golden checkpoints of every family but Llama (tests/parity/families.py): logits against transformers',
// decoding with a cache against whole sequences, and proof that each feature of each family counts.
#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>

#include <algorithm>
#include <filesystem>
#include <map>

#include "base/file.h"
#include "models/registry.h"
#include "nn/architecture.h"
#include "nn/batch.h"
#include "nn/generation.h"
#include "parity/features.h"
#include "parity/golden_model.h"
#include "support/catch.h"
#include "support/error_text.h"
#include "support/tolerance.h"

using namespace lorikeet;
using namespace lorikeet::test;
using Sequences = std::vector<std::vector<std::int32_t>>;

namespace {

constexpr double kLimit = 1e-5;
constexpr double kWrong = 1e-3;  // a hundred times the limit

std::vector<std::string> variants() {
  std::vector<std::string> names;
  for (const auto& family : std::filesystem::directory_iterator(golden("families"))) {
    if (!family.is_directory()) continue;
    for (const auto& variant : std::filesystem::directory_iterator(family)) {
      names.push_back("families/" + family.path().filename().string() + "/" +
                      variant.path().filename().string());
    }
  }
  std::sort(names.begin(), names.end());
  return names;
}

Sequences sequences() {
  Sequences all;
  for (const Json& line : golden_lines("families/sequences.jsonl")) {
    all.emplace_back();
    for (const Json& id : line.array()) all.back().push_back(static_cast<std::int32_t>(id.integer()));
  }
  return all;
}

GoldenModel load(const std::string& variant, const Mistake& mistake = {}) {
  return {variant, std::nullopt, config::PrecisionPreset::kFp32, mistake};
}

at::Tensor packed_logits(GoldenModel& golden, const Sequences& packed) {
  const nn::Batch batch = nn::pack_sequences(packed, {}, at::kCPU);
  return golden.model().logits({.batch = batch});
}

double distance(const std::string& variant, const Mistake& mistake = {}) {
  const at::NoGradGuard no_grad;
  GoldenModel golden = load(variant, mistake);
  return relative_distance(packed_logits(golden, sequences()),
                           golden_tensor(variant + "/logits.safetensors", "logits"));
}

nn::CausalLMSpec spec_of(const std::string& variant, const std::string& file = "config.json") {
  const Json config = Json::parse(read_file(golden(variant + "/" + file)), file);
  return models::model_spec(JsonView(config, file));
}

// The next tokens without a cache: the whole sequence again for each.
std::vector<std::int32_t> greedy(GoldenModel& golden, std::vector<std::int32_t> sequence,
                                 std::int64_t count) {
  std::vector<std::int32_t> answer;
  for (std::int64_t i = 0; i < count; ++i) {
    const at::Tensor logits = packed_logits(golden, {sequence});
    sequence.push_back(static_cast<std::int32_t>(logits[logits.size(0) - 1].argmax().item<std::int64_t>()));
    answer.push_back(sequence.back());
  }
  return answer;
}

}  // namespace

TEST_CASE("the logits of every family equal transformers', packed and past windows and longrope's switch") {
  const auto variant = GENERATE(from_range(variants()));
  CAPTURE(variant);
  CHECK(distance(variant) < kLimit);
}

TEST_CASE("a sequence's logits do not depend on what it is packed with") {
  const at::NoGradGuard no_grad;
  for (const auto& variant : variants()) {
    CAPTURE(variant);
    GoldenModel golden = load(variant);
    std::vector<at::Tensor> alone;
    for (const auto& sequence : sequences()) alone.push_back(packed_logits(golden, {sequence}));
    CHECK(relative_distance(packed_logits(golden, sequences()), at::cat(alone)) < 1e-6);
  }
}

TEST_CASE("each feature of each family, taken out, is far outside the logits' tolerance") {
  std::map<std::string, int> seen;
  for (const auto& variant : variants()) {
    const nn::CausalLMSpec spec = spec_of(variant);
    for (const Feature& feature : features()) {
      if (!feature.is_in(spec)) continue;
      ++seen[feature.name];
      CAPTURE(variant, feature.name);
      CHECK(distance(variant, {.spec = feature.take_out}) > kWrong);
    }
  }
  for (const Feature& feature : features()) {
    CAPTURE(feature.name);
    CHECK(seen[feature.name] > 0);
  }
}

TEST_CASE("both layouts of every family's config.json mean the same model") {
  for (const auto& variant : variants()) {
    CAPTURE(variant);
    CHECK(nn::architecture(spec_of(variant)) ==
          nn::architecture(spec_of(variant, "config-transformers-4.json")));
  }
}

TEST_CASE("a missing head is an error that says how a file ties it to the embedding") {
  const auto untied = [](nn::CausalLMSpec& spec) { spec.shape.tied_head = false; };
  CHECK_THAT(error_text([&] { load("families/mistral3/ministral-tied", {.spec = untied}); }),
             Catch::Contains("missing: lm_head.weight") &&
                 Catch::Contains("set tie_word_embeddings to true in config.json"));
}

TEST_CASE("decoding with a cache gives the tokens of whole sequences, past windows and longrope's switch") {
  const at::NoGradGuard no_grad;
  const auto variant = GENERATE(from_range(variants()));
  CAPTURE(variant);
  GoldenModel golden = load(variant);
  Sequences prompts = sequences();
  prompts[0].resize(20);  // crosses the switch at 24 while it grows
  const auto found = nn::generate(golden.model(), prompts, {.max_new_tokens = 12}, at::kCPU);
  for (std::size_t i = 0; i < prompts.size(); ++i) CHECK(found[i] == greedy(golden, prompts[i], 12));
}

TEST_CASE("a family's linear parameters are counted as its checkpoint has them") {
  for (const auto& variant : variants()) {
    CAPTURE(variant);
    GoldenModel golden = load(variant);
    std::int64_t counted = 0;
    for (const auto& unit : golden.model().store().units()) {
      if (unit->name() == "embedding" || unit->name() == "head") continue;
      for (const nn::WeightSegment& segment : unit->segments())
        // A convolution has three extents, and ERNIE 4.5's bias for the choice of experts two.
        if (segment.shape.size() == 2 && segment.name.find("embed_tokens") == std::string::npos &&
            !segment.name.ends_with("correction_bias"))
          counted += segment.shape[0] * segment.shape[1];
    }
    CHECK(golden.model().shape().layer_linear_parameters == counted);
  }
}
