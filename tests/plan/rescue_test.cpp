#include "plan/rescue.h"

#include "support/catch.h"

using namespace lorikeet::plan;

namespace {

constexpr Knobs kNow{.micro_tokens = 4096, .longest = 512, .rank = 16};

using lorikeet::config::ActivationCheckpointing;
using lorikeet::config::Offload;

const std::vector<Offload> kNothing{{}};
const std::vector<Offload> kAll{
    {}, {.activations = true}, {.weights = true}, {.activations = true, .weights = true}};

// 100 for the base, a byte a token (half with mlp, a quarter with full), one for each rank. What is offloaded
// takes a tenth.
std::int64_t need(const Knobs& knobs) {
  const std::int64_t kept = knobs.micro_tokens / (1 << static_cast<int>(knobs.saving.checkpointing));
  const auto& offload = knobs.saving.offload;
  return 100 / knobs.degree / (offload.weights ? 10 : 1) + (offload.activations ? kept / 10 : kept) +
         knobs.rank;
}

std::vector<std::string> texts(const std::vector<Rescue>& changes) {
  std::vector<std::string> out;
  for (const Rescue& change : changes) out.push_back(change.overrides);
  return out;
}

}  // namespace

TEST_CASE("each change is the smallest of its kind that fits, those with the same result first") {
  const auto found = changes_that_fit(kNow, 1, need, 2300, kNothing);
  CHECK(texts(found) ==
        std::vector<std::string>{"batch.micro_tokens=2048", "training.activation_checkpointing=mlp",
                                 "batch.micro_tokens=2048 training.activation_checkpointing=full"});
  for (const Rescue& change : found) {
    CHECK(change.bytes <= 2300);
    CHECK(change.same_result);
  }
  CHECK(found[0].bytes == 100 + 2048 + 16);
}

TEST_CASE("what doesn't fit isn't named") {
  const auto found = changes_that_fit(kNow, 1, need, 500, kNothing);
  CHECK(texts(found) ==
        std::vector<std::string>{"batch.micro_tokens=1024 training.activation_checkpointing=full",
                                 "data.max_seq_len=256 batch.micro_tokens=256"});
  CHECK_FALSE(found.back().same_result);
  CHECK(changes_that_fit(kNow, 1, need, 50, kNothing).empty());
}

TEST_CASE("a micro-batch is never made smaller than its longest row") {
  const Knobs one_row{.micro_tokens = 4096, .longest = 4096, .rank = 16};
  CHECK(texts(changes_that_fit(one_row, 1, need, 2300, kNothing)) ==
        std::vector<std::string>{"training.activation_checkpointing=mlp",
                                 "data.max_seq_len=2048 batch.micro_tokens=2048"});
}

TEST_CASE("several devices may share the weights, and a smaller rank is the last resort") {
  const Knobs large_rank{
      .micro_tokens = 64, .longest = 64, .rank = 1024, .saving = {ActivationCheckpointing::kFull, {}}};
  const auto in_parts = changes_that_fit(large_rank, 4, need, 1070, kNothing);
  CHECK(texts(in_parts).front() == "distributed.strategy=shard");
  const auto alone = changes_that_fit(large_rank, 1, need, 700, kNothing);
  CHECK(texts(alone) == std::vector<std::string>{"lora.rank=512"});
}

TEST_CASE("the least recomputation that fits is named, then the least offload") {
  const Knobs one_row{.micro_tokens = 4096, .longest = 4096, .rank = 16};
  CHECK(texts(changes_that_fit(one_row, 1, need, 2300, kAll)) ==
        std::vector<std::string>{"training.activation_checkpointing=mlp", "training.offload=activations",
                                 "data.max_seq_len=2048 batch.micro_tokens=2048"});
  CHECK(texts(changes_that_fit(one_row, 1, need, 1300, kAll))[0] == "training.activation_checkpointing=full");
  CHECK(texts(changes_that_fit(one_row, 1, need, 440, kAll))[0] == "training.offload=both");
  CHECK(texts(changes_that_fit(one_row, 1, need, 220, kAll))[0] ==
        "training.activation_checkpointing=full training.offload=activations");
}

TEST_CASE("what is offloaded already stays so") {
  const Knobs offloaded{
      .micro_tokens = 4096, .longest = 512, .rank = 16, .saving = {{}, {.activations = true}}};
  const auto found = texts(changes_that_fit(offloaded, 1, need, 50, kAll));
  REQUIRE_FALSE(found.empty());
  CHECK(found[0] == "batch.micro_tokens=512 training.activation_checkpointing=full training.offload=both");
}
