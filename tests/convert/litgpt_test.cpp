#include "config/config.h"
#include "convert/convert.h"
#include "support/catch.h"
#include "support/error_text.h"

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
