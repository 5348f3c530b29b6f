#include "base/error.h"
#include "config/config.h"
#include "convert/convert.h"
#include "support/catch.h"
#include "support/error_text.h"

using namespace lorikeet;
using Catch::Contains;

namespace {

// The form of torchtune's recipes, with values of our own.
const std::string kRecipe = R"(output_dir: /out/run
model:
  _component_: torchtune.models.llama3_1.lora_llama3_1_8b
  lora_attn_modules: ['q_proj', 'output_proj']
  apply_lora_to_mlp: True
  lora_rank: 4
  lora_alpha: 12
tokenizer: { _component_: torchtune.models.llama3.llama3_tokenizer, path: /m/t.model, max_seq_len: 512 }
checkpointer:
  _component_: torchtune.training.FullModelHFCheckpointer
  checkpoint_dir: /m/llama/
  checkpoint_files: [a.safetensors]
  output_dir: ${output_dir}
  model_type: LLAMA3
dataset: { _component_: torchtune.datasets.alpaca_dataset, packed: False }
seed: 7
shuffle: True
batch_size: 3
optimizer: { _component_: torch.optim.AdamW, fused: True, lr: 5e-4 }
lr_scheduler:
  _component_: torchtune.training.lr_schedulers.get_cosine_schedule_with_warmup
  num_warmup_steps: 11
loss: { _component_: torchtune.modules.loss.CEWithChunkedOutputLoss }
epochs: 2
max_steps_per_epoch: null
gradient_accumulation_steps: 5
clip_grad_norm: null
enable_activation_checkpointing: True
device: cuda
dtype: bf16
profiler: { _component_: torchtune.training.setup_torch_profiler, enabled: False, cpu: True }
)";

std::string changed(const std::string& from, const std::string& to) {
  const std::size_t at = kRecipe.find(from);
  REQUIRE(at != std::string::npos);
  return kRecipe.substr(0, at) + to + kRecipe.substr(at + from.size());
}

config::Settings settings_of(const std::string& recipe, std::int64_t devices = 1) {
  return config::parse_settings(convert::convert_config(recipe, "r.yaml", {.devices = devices}).yaml,
                                "converted");
}

std::string refusal(const std::string& recipe) {
  return test::error_text([&] { convert::convert_config(recipe, "r.yaml"); });
}

}  // namespace

TEST_CASE("a torchtune recipe keeps its numbers") {
  const config::Settings s = settings_of(kRecipe);
  CHECK(s.model.path == "/m/llama");
  CHECK(s.lora.rank == 4);
  CHECK(s.lora.alpha == 12);
  CHECK(s.lora.target_modules ==
        std::vector<std::string>{"q_proj", "o_proj", "gate_proj", "up_proj", "down_proj"});
  CHECK(s.data.train.path == "hub:tatsu-lab/alpaca");
  CHECK(s.data.train.format == config::DataFormat::kAlpaca);
  CHECK(s.data.train_on == config::TrainOn::kAll);  // alpaca_dataset's default
  CHECK(s.data.max_seq_len == 512);
  CHECK(s.data.overlong == config::Overlong::kTruncate);
  CHECK(s.batch.global == 15);
  CHECK(s.training.epochs == 2);
  CHECK(s.training.seed == 7);
  CHECK_FALSE(s.training.clip_grad_norm);
  CHECK(s.training.activation_checkpointing == config::ActivationCheckpointing::kFull);
  CHECK(s.training.offload == config::Offload{});
  const std::string grade = "enable_activation_checkpointing: True";
  CHECK(settings_of(changed(grade, grade + "\nenable_activation_offloading: True")).training.offload ==
        config::Offload{.activations = true});
  CHECK(s.optimizer.lr == 5e-4);
  CHECK(s.optimizer.weight_decay == 0.01);
  CHECK(s.lr_scheduler.warmup_steps == 11);
  CHECK(s.checkpoint.output_dir == "/out/run");
  CHECK(s.checkpoint.save_merged);
}

TEST_CASE("the batch is that of all processes, and of packs their tokens") {
  CHECK(settings_of(kRecipe, 8).batch.global == 120);
  CHECK(settings_of(changed("packed: False", "packed: True"), 2).batch.global_tokens == 30 * 512);
  std::string unlimited = changed("packed: False", "packed: True");
  unlimited.replace(unlimited.find("512"), 3, "null");
  CHECK_THAT(refusal(unlimited), Contains("dataset.packed needs tokenizer.max_seq_len"));
}

TEST_CASE("a limit of steps in an epoch is a number of steps here, and what differs is said") {
  const std::string recipe =
      changed("epochs: 2\nmax_steps_per_epoch: null", "epochs: 1\nmax_steps_per_epoch: 50");
  CHECK(settings_of(recipe).training.max_steps == 50);
  CHECK_THAT(convert::convert_config(recipe, "r.yaml").yaml,
             Contains("# Differs: max_steps_per_epoch only ends the epoch early there") &&
                 Contains("take it out if all epochs together have fewer than 50 steps"));
}

TEST_CASE("values that are no settings here are errors with the setting's name, all at once") {
  const std::string recipe = changed("lora_rank: 4", "lora_rank: 0");
  CHECK(refusal(recipe) ==
        "[convert] r.yaml: its values aren't valid as settings here; correct them there: lora.rank: expected "
        "an integer from 1 to 65536, got '0'");
  std::string many = recipe;
  many.replace(many.find("batch_size: 3"), 13, "batch_size: 9000000000000000000");
  CHECK_THAT(refusal(many), Contains("2 problems in the result:\n  lora.rank: expected") &&
                                Contains("\n  batch.global: expected an integer from 1 to"));
  CHECK_THAT(refusal(changed("num_warmup_steps: 11", "num_warmup_steps: -1")),
             Contains("lr_scheduler.warmup_steps: expected"));
}

TEST_CASE("a logger for TensorBoard writes its events here too, any other needs no counterpart") {
  const auto with_logger = [](const std::string& name) {
    return kRecipe + "metric_logger: { _component_: torchtune.training.metric_logging." + name +
           ", log_dir: logs }\n";
  };
  CHECK(settings_of(with_logger("TensorBoardLogger")).metrics.tensorboard);
  CHECK_FALSE(settings_of(with_logger("WandBLogger")).metrics.tensorboard);
  CHECK_FALSE(settings_of(kRecipe).metrics.tensorboard);
  CHECK_THAT(convert::convert_config(with_logger("DiskLogger"), "r.yaml").yaml,
             Contains("#   metric_logger: "));
}

TEST_CASE("files are those of the repository or folder that is the source, or local ones") {
  const auto path = [](const std::string& source) {
    return settings_of(changed("packed: False", source)).data.train.path;
  };
  CHECK(path("source: owner/name, data_files: a.json") == "hub:owner/name/a.json");
  CHECK(path("data_files: a.json") == "hub:tatsu-lab/alpaca/a.json");
  CHECK(path("source: /data/rows, data_files: a.json") == "/data/rows/a.json");
  CHECK(path("source: owner/name, data_files: /data/a.json") == "/data/a.json");
  CHECK(path("source: json, data_files: a.json") == "a.json");
  CHECK(path("source: owner/name") == "hub:owner/name");
  CHECK(path("source: ./rows") == "./rows");
}

TEST_CASE("text that torchtune cuts is split here, and the file says so") {
  std::string recipe = changed("alpaca_dataset", "text_completion_dataset, source: owner/name");
  CHECK_THAT(convert::convert_config(recipe, "r.yaml").yaml,
             Contains("# Differs: torchtune cuts a text at max_seq_len"));
  recipe.replace(recipe.find("max_seq_len: 512"), 16, "max_seq_len: null");
  CHECK_THAT(convert::convert_config(recipe, "r.yaml").yaml,
             Contains("# Differs: torchtune keeps a text whole"));
}

TEST_CASE("a whole split and a data set with a preset are named as they are") {
  CHECK(settings_of(changed("packed: False", "split: validation")).data.train.split == "validation");
  const config::Settings s = settings_of(changed("alpaca_dataset", "slimorca_dataset"));
  CHECK(s.data.train.preset == "slimorca");
  CHECK(s.data.train.path == "hub:Open-Orca/SlimOrca-Dedup");
  CHECK(s.data.train_on == config::TrainOn::kRoles);
}

TEST_CASE("what differs in numbers and what has no counterpart stands in the file") {
  const convert::Converted result = convert::convert_config(kRecipe, "r.yaml");
  CHECK_THAT(result.yaml, Contains("# Differs: adapters and their gradients are bf16 in torchtune"));
  CHECK_THAT(result.yaml,
             Contains("#   checkpointer.output_dir: ") && Contains("#   profiler: a mapping - "));
  CHECK_THAT(result.yaml, Contains("# Differs: torchtune leaves out the last rows of an epoch"));
  CHECK(result.notes.size() == 4);
}

TEST_CASE("that prompts are the tokenizer's there and the template's here is said of every row but texts") {
  const auto yaml = [](const std::string& dataset) {
    return convert::convert_config(changed("alpaca_dataset", dataset), "r.yaml").yaml;
  };
  const auto format = Contains("in the format of torchtune.models.llama3.llama3_tokenizer;");
  const auto nearest = Contains("data.chat_template=llama3 is theirs but for");
  CHECK_THAT(yaml("instruct_dataset, source: a/b"),
             format && nearest && Contains("without one the built-in alpaca"));
  for (const char* chat : {"chat_dataset, source: a/b, conversation_style: openai", "slimorca_dataset"})
    CHECK_THAT(yaml(chat), format && nearest && Contains("without one a built-in that you name"));
  CHECK_THAT(yaml("alpaca_cleaned_dataset"), Contains("'Below is an instruction ...' inside the format of"));
  CHECK_THAT(yaml("text_completion_dataset, source: a/b"), !Contains("the format of"));
  CHECK_THAT(
      convert::convert_config(changed("llama3.llama3_tokenizer", "gemma.gemma_tokenizer"), "r.yaml").yaml,
      Contains("torchtune.models.gemma.gemma_tokenizer;") && !Contains("data.chat_template=llama3"));
}

TEST_CASE("what torchtune puts at the end of a row that it cuts is said where rows are cut") {
  const auto cut = Contains("# Differs: torchtune puts the tokenizer's EOS in the place of the last token");
  CHECK_THAT(convert::convert_config(kRecipe, "r.yaml").yaml, cut);
  CHECK_THAT(convert::convert_config(changed("max_seq_len: 512", "max_seq_len: null"), "r.yaml").yaml, !cut);
  CHECK_THAT(
      convert::convert_config(changed("alpaca_dataset", "text_completion_dataset, source: a/b"), "r.yaml")
          .yaml,
      !cut);
}

TEST_CASE("the first part of a split beside a validation on the rest becomes a share that is held out") {
  const std::string training =
      "dataset: { _component_: torchtune.datasets.alpaca_dataset, split: 'train[:95%]', packed: False }\n";
  const std::string validation =
      "dataset_val: { _component_: torchtune.datasets.alpaca_dataset, split: 'train[95%:]' }\n";
  const std::string whole = "dataset: { _component_: torchtune.datasets.alpaca_dataset, packed: False }\n";
  const auto recipe = [&](const std::string& text) { return changed(whole, text + "batch_size_val: 9\n"); };
  const config::Settings s = settings_of(recipe(training + validation));
  CHECK(s.data.validation.fraction == 0.05);
  CHECK_FALSE(s.data.validation.every_steps);
  CHECK(s.data.train.path == "hub:tatsu-lab/alpaca");
  CHECK(s.data.train.split == settings_of(kRecipe).data.train.split);
  CHECK_THAT(convert::convert_config(recipe(training + validation), "r.yaml").yaml,
             Contains("# Differs: torchtune trains on the first 95% of the rows and validates nothing") &&
                 Contains("#   batch_size_val: 9 - "));
  CHECK(settings_of(recipe(training + validation + "run_val_every_n_steps: 20\n"))
            .data.validation.every_steps == 20);
  const auto with = [&](const std::string& from, const std::string& to) {
    std::string other = training + validation;
    other.replace(other.find(from), from.size(), to);
    return refusal(recipe(other));
  };
  CHECK_THAT(with("train[95%:]", "train[90%:]"), Contains("dataset.split is 'train[:95%]', expected"));
  CHECK_THAT(with("train[:95%]", "train[:100%]"), Contains("dataset.split is 'train[:100%]', expected"));
  CHECK_THAT(with("'train[95%:]'", "'train[95%:]', source: a/b"), Contains("dataset.split is 'train[:95%]'"));
  CHECK_THAT(refusal(recipe(training)), Contains("dataset.split is 'train[:95%]'"));
  // Rows of its own are validated on only where a number of steps is given.
  CHECK(settings_of(recipe(whole + validation)).data.validation.fraction == 0);
  CHECK_THAT(refusal(recipe(whole + validation + "run_val_every_n_steps: 20\n")),
             Contains("dataset_val isn't the rest of dataset's rows"));
}

TEST_CASE("a norm that torchtune measures without cutting gradients is null here") {
  for (const char* most : {"inf", "'inf'", ".inf", "Inf"})
    CHECK_FALSE(settings_of(changed("clip_grad_norm: null", std::string("clip_grad_norm: ") + most))
                    .training.clip_grad_norm);
  CHECK(settings_of(changed("clip_grad_norm: null", "clip_grad_norm: 0.5")).training.clip_grad_norm == 0.5);
}

TEST_CASE("rows that torchtune would not cut are not cut in silence") {
  const config::Settings s = settings_of(changed("max_seq_len: 512", "max_seq_len: null"));
  CHECK(s.data.overlong == config::Overlong::kError);
}

TEST_CASE("Phi's fused modules are named as the checkpoint has them, with what that changes") {
  const std::string yaml =
      convert::convert_config(changed("llama3_1.lora_llama3_1_8b", "phi3.lora_phi3_mini"), "r.yaml").yaml;
  CHECK_THAT(yaml, Contains("target_modules: [qkv_proj, o_proj, gate_up_proj, down_proj]") &&
                       Contains("one A for the three"));
}

TEST_CASE("a quantised base converts to nf4") {
  const auto settings = settings_of(changed("lora_llama3_1_8b", "qlora_llama3_1_8b"));
  CHECK(settings.precision.base_storage == config::BaseStorage::kNF4);
}

TEST_CASE("other recipes than LoRA on text are refused by name") {
  CHECK_THAT(refusal(changed("llama3_1.lora", "llama3_2_vision.lora")), Contains("vision models"));
  CHECK_THAT(
      refusal(changed("torchtune.modules.loss.CEWithChunkedOutputLoss", "torchtune.rlhf.loss.DPOLoss")),
      Contains("DPO"));
  CHECK_THAT(refusal(kRecipe + "kd_ratio: 0.5\n"), Contains("KD"));
  CHECK_THAT(refusal(kRecipe + "quantizer: { _component_: x }\n"), Contains("QAT"));
}

TEST_CASE("what would change the result is an error with its line, all at once") {
  for (const auto& [from, to, says] : std::vector<std::array<std::string, 3>>{
           {"torch.optim.AdamW", "bitsandbytes.optim.PagedAdamW8bit",
            "r.yaml:19: optimizer._component_ is 'bits"},
           {"get_cosine_schedule_with_warmup", "get_lr", "lr_scheduler._component_"},
           {"fused: True", "amsgrad: True", "optimizer.amsgrad isn't known here"},
           {"seed: 7", "sead: 7", "r.yaml:16: sead isn't known here"},
           {"epochs: 2\nmax_steps_per_epoch: null", "epochs: 2\nmax_steps_per_epoch: 9",
            "max_steps_per_epoch"},
           {"alpaca_dataset", "samsum_dataset", "dataset._component_ is 'samsum_dataset'"},
           {"packed: False", "split: 'train[:5%]'", "dataset.split is 'train[:5%]'"},
           {"FullModelHFCheckpointer", "FullModelTorchTuneCheckpointer", "checkpointer._component_"},
           {"dtype: bf16", "dtype: fp16", "dtype is 'fp16'"},
           {"batch_size: 3", "batch_size: three", "batch_size is 'three', expected an integer"},
           {"batch_size: 3", "batch_size: 0", "r.yaml:18: batch_size is 0, expected an integer, at least 1"},
           {"epochs: 2\nmax_steps_per_epoch: null", "epochs: 1\nmax_steps_per_epoch: 0",
            "max_steps_per_epoch is 0"},
           {"lora_rank: 4", "lora_rank: eight", "model.lora_rank is 'eight', expected a number"},
           {"lora_alpha: 12", "lora_alpha: ${alpha}", "model.lora_alpha is '${alpha}', expected a number"},
           {"lr: 5e-4", "lr: 5e-4, betas: [0.9, high]", "optimizer.betas holds 'high'"},
           {"lora_attn_modules: ['q_proj', 'output_proj']", "lora_attn_modules: q_proj", "expected a list"},
           {"loss: {", "resume_from_checkpoint: True\nloss: {", "a run of torchtune's can't be continued"}})
    CHECK_THAT(refusal(changed(from, to)), Contains(says));
  CHECK_THAT(refusal(kRecipe + "a: 1\nb: 2\n"), Contains("2 problems:"));
}

TEST_CASE("what is no config of a known trainer is refused") {
  for (const char* text : {"", "[]", "x", "a: 1", "model: 3"})
    CHECK_THAT(refusal(text), Contains("[convert]"));
  CHECK(settings_of(changed("/out/run", "${output_dir}/x")).checkpoint.output_dir.size() <
        200);  // a circle ends
}
