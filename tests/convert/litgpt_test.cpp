#include "base/file.h"
#include "config/config.h"
#include "convert/convert.h"
#include "support/catch.h"
#include "support/error_text.h"
#include "support/paths.h"

using namespace lorikeet;
using Catch::Contains;

namespace {

const std::string kArguments = R"(checkpoint_dir: checkpoints/meta-llama/Llama-3.2-1B
out_dir: out/lora
precision: bf16-true
quantize:
devices: 1
lora_r: 32
lora_dropout: 0.1
lora_key: true
lora_head: false
data:
  class_path: litgpt.data.JSON
  init_args: { json_path: rows.json, val_split_fraction: 0.1, mask_prompt: true, seed: 42, num_workers: 4 }
train: { global_batch_size: 8, micro_batch_size: 2, lr_warmup_steps: 10, epochs: 2, max_seq_length: 512, min_lr: 6.0e-05 }
eval: { interval: 50, max_iters: 100 }
logger_name: csv
seed: 9
optimizer:
  class_path: torch.optim.AdamW
  init_args: { lr: 0.0002, weight_decay: 0.0, betas: [0.9, 0.95] }
)";

std::string with(const std::string& from, const std::string& to) {
  const std::size_t at = kArguments.find(from);
  REQUIRE(at != std::string::npos);
  return kArguments.substr(0, at) + to + kArguments.substr(at + from.size());
}

config::Settings settings_with(const std::string& from, const std::string& to) {
  return config::parse_settings(convert::convert_config(with(from, to), "l.yaml").yaml, "converted");
}

std::string refusal(const std::string& text) {
  return test::error_text([&] { convert::convert_config(text, "l.yaml"); });
}

}  // namespace

TEST_CASE("litgpt's arguments keep their numbers and its defaults") {
  const convert::Converted result = convert::convert_config(kArguments, "l.yaml");
  const config::Settings s = config::parse_settings(result.yaml, "converted");
  CHECK(s.model.path == "checkpoints/meta-llama/Llama-3.2-1B");
  CHECK(s.lora.rank == 32);
  CHECK(s.lora.alpha == 16);
  CHECK(s.lora.dropout == 0.1);
  CHECK(s.lora.target_modules == std::vector<std::string>{"q_proj", "k_proj", "v_proj"});
  CHECK(s.data.train.path == "rows.json");
  CHECK(s.data.validation.fraction == 0.1);
  CHECK(s.data.validation.every_steps == 50);
  CHECK(s.data.train_on == config::TrainOn::kRoles);
  CHECK(s.data.max_seq_len == 512);
  CHECK(s.batch.global == 8);
  CHECK(s.training.epochs == 2);
  CHECK(s.training.seed == 9);
  CHECK(s.lr_scheduler.warmup_steps == 10);
  CHECK(s.optimizer.lr == 2e-4);
  CHECK(s.optimizer.weight_decay == 0);
  CHECK(s.optimizer.betas[1] == 0.95);
  CHECK_THAT(result.yaml, Contains("litgpt averages the loss of each micro-batch"));
}

TEST_CASE("litgpt's logger for TensorBoard writes its events here too, any other needs no counterpart") {
  CHECK(settings_with("logger_name: csv", "logger_name: tensorboard").metrics.tensorboard);
  CHECK_FALSE(settings_with("logger_name: csv", "logger_name: wandb").metrics.tensorboard);
  CHECK_THAT(convert::convert_config(kArguments, "l.yaml").yaml, Contains("#   logger_name: csv"));
}

TEST_CASE("litgpt's limit of steps is a number of steps here, and what differs is said") {
  const convert::Converted result =
      convert::convert_config(with("epochs: 2", "epochs: 2, max_steps: 30"), "l");
  CHECK(config::parse_settings(result.yaml, "converted").training.max_steps == 30);
  CHECK_THAT(result.yaml, Contains("# Differs: train.max_steps only ends train.epochs early there"));
  CHECK_THAT(refusal(with("epochs: 2", "epochs: 2, max_steps: 0")), Contains("train.max_steps is 0"));
}

TEST_CASE("a base in 4 bits whose scales are quantised is ours, that with plain scales differs") {
  const auto yaml = [](const std::string& quantize) {
    return convert::convert_config(with("quantize:", "quantize: " + quantize), "l").yaml;
  };
  for (const char* quantize : {"bnb.nf4", "bnb.nf4-dq"}) {
    CHECK(config::parse_settings(yaml(quantize), "converted").precision.base_storage ==
          config::BaseStorage::kNF4);
    CHECK_THAT(yaml(quantize),
               Contains("# Differs: under quantize litgpt's finetune_lora puts a layer norm"));
  }
  const auto differs =
      Contains("# Differs: the scales of the base's blocks of 4 bits are held in fp32 there");
  CHECK_THAT(yaml("bnb.nf4"), differs);
  CHECK_THAT(yaml("bnb.nf4-dq"), !differs);
}

TEST_CASE("litgpt's validation is converted where rows are held out") {
  const auto validation = [](const std::string& data) {
    return settings_with("json_path: rows.json, val_split_fraction: 0.1", data).data.validation;
  };
  CHECK(validation("json_path: rows.json").fraction == 0.05);  // newer litgpt's default
  for (const char* none : {"0", "0.0"}) {
    const auto off = validation("json_path: rows.json, val_split_fraction: " + std::string(none));
    CHECK_FALSE(off.enabled());
    CHECK_FALSE(off.every_steps);
  }
  CHECK_THAT(refusal(with("val_split_fraction: 0.1", "val_split_fraction: few")),
             Contains("val_split_fraction is 'few', expected a number"));
}

TEST_CASE("of a folder litgpt's training and validation file are taken") {
  const test::TemporaryFolder folder;
  write_file_atomic(folder.path() / "val.jsonl", "");
  const auto data = [](const std::string& path) {
    return settings_with("json_path: rows.json, val_split_fraction: 0.1", "json_path: " + path).data;
  };
  CHECK(data("rows").train.path == "rows/train.json");
  CHECK(data("rows").validation.path == "rows/val.json");
  CHECK(data("rows").validation.every_steps == 50);
  CHECK_FALSE(data("rows").validation.keep_best);
  CHECK(data(folder.path().string()).validation.path == (folder.path() / "val.jsonl").string());
  CHECK_THAT(refusal(with("json_path: rows.json", "json_path: " + folder.path().string())),
             Contains("val_split_fraction can't be given for a folder"));
}

TEST_CASE("what litgpt has and would change the result is an error") {
  CHECK_THAT(refusal(with("torch.optim.AdamW", "torch.optim.SGD")), Contains("optimizer is 'SGD'"));
  CHECK_THAT(refusal(with("litgpt.data.JSON", "litgpt.data.Deita")), Contains("data.class_path is 'Deita'"));
  CHECK_THAT(refusal(with("quantize:", "quantize: bnb.int8-training")),
             Contains("quantize is 'bnb.int8-training'"));
  CHECK_THAT(refusal(with("precision: bf16-true", "precision: 16-mixed")),
             Contains("precision is '16-mixed'"));
  CHECK_THAT(refusal(with("seed: 9", "sede: 9")), Contains("l.yaml:16: sede isn't known here"));
  CHECK_THAT(refusal(with("mask_prompt: true", "prompt_style: phi-1")), Contains("prompt_style"));
}
