#include "plan/least_memory.h"

#include "base/file.h"
#include "models/registry.h"
#include "support/catch.h"
#include "support/error_text.h"
#include "support/paths.h"

using namespace lorikeet;
using plan::MemoryInput;

namespace {

constexpr std::int64_t kRow = 2048;

nn::CausalLMSpec published(const std::string& name) {
  const auto path = test::source_dir() / "recipes/configs" / (name + ".config.json");
  const Json config = Json::parse(read_file(path), name);
  return models::model_spec(JsonView(config, name));
}

MemoryInput input(const nn::CausalLMSpec& spec) {
  MemoryInput in;
  in.model = &spec;
  in.target = {.device = at::kCUDA};
  in.frozen_bytes = 1000000;
  in.micro = {.tokens = kRow, .label_tokens = kRow - 1, .longest = kRow};
  in.saving.checkpointing = config::ActivationCheckpointing::kFull;
  return in;
}

}  // namespace

TEST_CASE("the least memory by the last layers alone is the whole model's") {
  // Of each kind of layers: all alike, every other one windowed, every sixth one not, some without rotary,
  // parallel ones, with the widest logits beside the narrowest layers, fewer layers than are looked at, and
  // layers of two sizes, that read others' keys too.
  const auto name =
      GENERATE("llama3_1/8B", "gemma2/9B", "gemma3/1B", "smollm3/3B", "falcon/40B", "gemma3/270M",
               "phi4/mini", "olmo2/1B", "pythia/14M", "gemma4/E2B", "gemma4/12B");
  CAPTURE(name);
  const nn::CausalLMSpec spec = published(name);
  const MemoryInput in = input(spec);
  CHECK(plan::least_memory(in) == plan::step_memory(in).total());
}

TEST_CASE("the least memory follows the adapter and the row") {
  const nn::CausalLMSpec spec = published("llama3_2/1B");
  const MemoryInput in = input(spec);
  MemoryInput other = in;
  other.lora.rank = 64;
  CHECK(plan::least_memory(other) > plan::least_memory(in));
  other = in;
  other.micro = {.tokens = kRow / 2, .label_tokens = kRow / 2, .longest = kRow / 2};
  CHECK(plan::least_memory(other) < plan::least_memory(in));
}

TEST_CASE("the least memory of a step that keeps all activations, or of a CPU's, is refused") {
  const nn::CausalLMSpec spec = published("pythia/14M");
  MemoryInput in = input(spec);
  in.saving = {};
  CHECK_THAT(test::error_text([&] { plan::least_memory(in); }),
             Catch::Contains("with activation checkpointing"));
  in.saving.checkpointing = config::ActivationCheckpointing::kFull;
  in.target = {};
  CHECK_THAT(test::error_text([&] { plan::least_memory(in); }), Catch::Contains("of a GPU"));
}
