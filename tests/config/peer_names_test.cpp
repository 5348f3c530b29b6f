#include "config/peer_names.h"

#include <set>

#include "config/schema.h"
#include "support.h"
#include "support/catch.h"

using namespace lorikeet;
using namespace lorikeet::config;
using Catch::Contains;
using test::error_of;

TEST_CASE(
    "each name of other trainers stands once, is none of ours, and leads to a setting or says why not") {
  std::set<std::string_view> seen;
  for (const PeerName& name : peer_names()) {
    INFO(name.theirs);
    CHECK(seen.insert(name.theirs).second);
    CHECK(schema().find_leaf(name.theirs) == nullptr);
    CHECK_FALSE(schema().is_section(name.theirs));
    if (name.ours.empty()) {
      CHECK_FALSE(name.note.empty());
    } else {
      CHECK(schema().find(name.ours) != nullptr);
    }
  }
}

TEST_CASE("a name of another trainer gets its name here, in any section or none") {
  for (const char* written : {"lora.r=8", "r=8", "lora_r=8", "training.lora_rank=8", "adapter.LoRA-r=8"}) {
    INFO(written);
    CHECK_THAT(error_of("", {written}), Contains("(here it is 'lora.rank')"));
  }
  CHECK_THAT(error_of("lora: {r: 8}"), Contains("run.yaml:2: unknown key 'lora.r' (here it is 'lora.rank')"));
  CHECK_THAT(error_of("learning_rate: 1"),
             Contains("unknown key 'learning_rate' (here it is 'optimizer.lr')"));
  CHECK_THAT(error_of("", {"training.learning_rate=1"}), Contains("(here it is 'optimizer.lr')"));
}

TEST_CASE("our own names in a wrong section, or in none, lead to the right one") {
  const auto [written, ours] = GENERATE(table<std::string, std::string>({
      {"lr", "optimizer.lr"},
      {"training.lr", "optimizer.lr"},
      {"warmup_ratio", "lr_scheduler.warmup_ratio"},
      {"training.warmup_steps", "lr_scheduler.warmup_steps"},
      {"weight_decay", "optimizer.weight_decay"},
      {"data.seed", "training.seed"},
      {"output_dir", "checkpoint.output_dir"},
      {"epochs", "training.epochs"},
  }));
  CHECK_THAT(error_of("", {written + "=1"}), Contains("did you mean '" + ours + "'?"));
}

TEST_CASE("where another trainer means something else by a name, that is said") {
  const auto [written, says] = GENERATE(table<std::string, std::string>({
      {"batch_size", "'batch.global': the examples of a whole step"},
      {"per_device_train_batch_size", "'batch.micro': the most examples of one forward pass"},
      {"gradient_accumulation_steps", "'batch.global': the examples of a whole step"},
      {"base_model", "'model.path': the checkpoint's folder, or hub:"},
      {"bf16", "'precision.preset': a preset"},
      {"gradient_checkpointing", "'training.activation_checkpointing': none, mlp, full or auto"},
      {"completion_only_loss", "the opposite"},
      {"load_in_4bit", "nf4 for 4 bits"},
      {"report_to", "'metrics.tensorboard': true or false, TensorBoard is the one there is"},
      {"wandb_project", "(there is none: every step's numbers are in the run's metrics.jsonl"},
  }));
  CHECK_THAT(error_of("", {written + "=1"}), Contains(says));
  CHECK_THAT(error_of("training: {" + written + ": 1}"), Contains(says));
}

TEST_CASE("other names have no hint of this kind") {
  CHECK_FALSE(peer_hint("zzz"));
  CHECK_FALSE(peer_hint(""));
}
