#include "plan/rescue.h"

#include "support/catch.h"

using namespace lorikeet::plan;

namespace {

constexpr Knobs kNow{.micro_tokens = 4096, .longest = 512, .rank = 16};

// 100 for the base, a byte a token (a quarter with checkpointing), one for each rank.
std::int64_t need(const Knobs& knobs) {
  return 100 / knobs.degree + (knobs.checkpointing ? knobs.micro_tokens / 4 : knobs.micro_tokens) +
         knobs.rank;
}

std::vector<std::string> texts(const std::vector<Rescue>& changes) {
  std::vector<std::string> out;
  for (const Rescue& change : changes) out.push_back(change.overrides);
  return out;
}

}  // namespace

TEST_CASE("each change is the smallest of its kind that fits, those with the same result first") {
  const auto found = changes_that_fit(kNow, 1, need, 2300);
  CHECK(texts(found) ==
        std::vector<std::string>{"batch.micro_tokens=2048", "training.activation_checkpointing=full",
                                 "batch.micro_tokens=2048 training.activation_checkpointing=full"});
  for (const Rescue& change : found) {
    CHECK(change.bytes <= 2300);
    CHECK(change.same_result);
  }
  CHECK(found[0].bytes == 100 + 2048 + 16);
}

TEST_CASE("what doesn't fit isn't named") {
  const auto found = changes_that_fit(kNow, 1, need, 500);
  CHECK(texts(found) ==
        std::vector<std::string>{"batch.micro_tokens=1024 training.activation_checkpointing=full",
                                 "data.max_seq_len=256 batch.micro_tokens=256"});
  CHECK_FALSE(found.back().same_result);
  CHECK(changes_that_fit(kNow, 1, need, 50).empty());
}

TEST_CASE("a micro-batch is never made smaller than its longest row") {
  const Knobs one_row{.micro_tokens = 4096, .longest = 4096, .rank = 16};
  CHECK(texts(changes_that_fit(one_row, 1, need, 2300)) ==
        std::vector<std::string>{"training.activation_checkpointing=full",
                                 "data.max_seq_len=2048 batch.micro_tokens=2048"});
}

TEST_CASE("several devices may share the weights, and a smaller rank is the last resort") {
  const Knobs large_rank{.micro_tokens = 64, .longest = 64, .rank = 1024, .checkpointing = true};
  const auto in_parts = changes_that_fit(large_rank, 4, need, 1070);
  CHECK(texts(in_parts).front() == "distributed.strategy=shard");
  const auto alone = changes_that_fit(large_rank, 1, need, 700);
  CHECK(texts(alone) == std::vector<std::string>{"lora.rank=512"});
}
