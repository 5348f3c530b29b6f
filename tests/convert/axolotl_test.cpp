#include <array>

#include "config/config.h"
#include "convert/convert.h"
#include "support/catch.h"
#include "support/error_text.h"
#include "text/chat_template.h"

using namespace lorikeet;
using Catch::Contains;

namespace {

const std::string kConfig = R"(base_model: Some/Llama-1B
load_in_4bit: false
datasets:
  - path: some/alpaca-rows
    type: alpaca
    split: train
val_set_size: 0.1
output_dir: ./outputs/lora
adapter: lora
lora_model_dir:
sequence_len: 1024
sample_packing: false
lora_r: 8
lora_alpha: 24
lora_dropout: 0.05
lora_target_modules:
  - q_proj
  - v_proj
wandb_project: birds
gradient_accumulation_steps: 3
micro_batch_size: 5
num_epochs: 2
optimizer: adamw_torch_fused
lr_scheduler: cosine
learning_rate: 3e-4
bf16: auto
tf32: false
gradient_checkpointing: true
flash_attention: true
warmup_ratio: 0.1
evals_per_epoch: 4
weight_decay: 0.01
max_grad_norm: 0.5
special_tokens:
  pad_token: "<|end_of_text|>"
)";

std::string changed(const std::string& from, const std::string& to) {
  const std::size_t at = kConfig.find(from);
  REQUIRE(at != std::string::npos);
  return kConfig.substr(0, at) + to + kConfig.substr(at + from.size());
}

std::string yaml_of(const std::string& text, std::int64_t devices = 1) {
  return convert::convert_config(text, "a.yml", {.devices = devices}).yaml;
}

config::Settings settings_of(const std::string& text, std::int64_t devices = 1) {
  return config::parse_settings(yaml_of(text, devices), "converted");
}

std::string refusal(const std::string& text) {
  return test::error_text([&] { convert::convert_config(text, "a.yml"); });
}

const std::string kRows = "  - path: some/alpaca-rows\n    type: alpaca\n    split: train\n";

}  // namespace

TEST_CASE("an axolotl config keeps its numbers and its defaults") {
  const config::Settings s = settings_of(kConfig);
  CHECK(s.model.path == "hub:Some/Llama-1B");
  CHECK(s.lora.rank == 8);
  CHECK(s.lora.alpha == 24);
  CHECK(s.lora.dropout == 0.05);
  CHECK(s.lora.target_modules == std::vector<std::string>{"q_proj", "v_proj"});
  CHECK_FALSE(s.lora.ensure_weight_tying);
  CHECK(s.data.train.path == "hub:some/alpaca-rows");
  CHECK(s.data.train.format == config::DataFormat::kAlpaca);
  CHECK(s.data.chat_template == "alpaca");
  CHECK(s.data.train_on == config::TrainOn::kRoles);
  CHECK(s.data.max_seq_len == 1024);
  CHECK(s.data.overlong == config::Overlong::kDrop);
  CHECK(s.data.validation.fraction == 0.1);
  CHECK(s.batch.global == 15);
  CHECK(s.training.epochs == 2);
  CHECK(s.training.seed == 42);
  CHECK(s.training.clip_grad_norm == 0.5);
  CHECK(s.training.activation_checkpointing == config::ActivationCheckpointing::kFull);
  CHECK(s.training.offload == config::Offload{});
  const std::string grade = "gradient_checkpointing: true";
  for (const char* offloading :
       {"gradient_checkpointing: offload", "gradient_checkpointing: true\nactivation_offloading: legacy"}) {
    CHECK(settings_of(changed(grade, offloading)).training.offload == config::Offload{.activations = true});
  }
  CHECK(s.optimizer.lr == 3e-4);
  CHECK(s.optimizer.weight_decay == 0.01);
  CHECK(s.lr_scheduler.warmup_ratio == 0.1);
  CHECK(s.precision.preset == config::PrecisionPreset::kBf16);
  CHECK(s.checkpoint.output_dir == "./outputs/lora");
}

TEST_CASE("axolotl's batch is that of all processes, and of packs their tokens") {
  CHECK(settings_of(kConfig, 8).batch.global == 120);
  CHECK(settings_of(changed("sample_packing: false", "sample_packing: true"), 2).batch.global_tokens ==
        30 * 1024);
}

TEST_CASE("conversations and texts keep their columns") {
  const config::Settings chat =
      settings_of(changed(kRows,
                          "  - path: rows.jsonl\n    type: chat_template\n    field_messages: dialogue\n    "
                          "message_property_mappings:\n"
                          "      role: speaker\n      content: text\n    roles_to_train: [assistant]\n    "
                          "roles: {user: [human]}\n"));
  CHECK(chat.data.train.path == "rows.jsonl");
  CHECK(chat.data.train.format == config::DataFormat::kChat);
  CHECK(chat.data.train.columns == std::map<std::string, std::string>{
                                       {"messages", "dialogue"}, {"role", "speaker"}, {"content", "text"}});
  CHECK(chat.data.chat_template == "auto");
  const config::Settings sharegpt =
      settings_of(changed(kRows,
                          "  - path: a/b\n    type: chat_template\n    field_messages: conversations\n"
                          "    message_field_role: from\n    message_field_content: value\n"));
  CHECK(sharegpt.data.train.format == config::DataFormat::kShareGpt);
  CHECK(sharegpt.data.train.columns.empty());
  const config::Settings text =
      settings_of(changed(kRows, "  - path: a/b\n    type: completion\n    field: body\n"));
  CHECK(text.data.train.format == config::DataFormat::kText);
  CHECK(text.data.train.columns.at("text") == "body");
}

TEST_CASE("a template of axolotl's becomes the one here that writes the same text") {
  const auto rendered = [](const std::string& name) {
    const config::Settings s = settings_of(changed(kRows, "  - path: a/b\n    type: chat_template\n") +
                                           "chat_template: " + name + "\n");
    std::string text;
    for (const text::Segment& segment :
         text::builtin_chat_template(s.data.chat_template)
             .render({{{"system", " Be kind. "}, {"user", " Hello\n"}, {"assistant", "Hi "}}}))
      text += segment.kind == text::Segment::Kind::kBos ? "<s>" : segment.text;
    return text;
  };
  // What jinja2 makes of axolotl's templates/chatml.jinja and llama3.jinja with a bos_token of <s>.
  CHECK(rendered("chatml") ==
        "<|im_start|>system\n Be kind. <|im_end|>\n<|im_start|>user\n Hello\n<|im_end|>\n"
        "<|im_start|>assistant\nHi <|im_end|>\n");
  CHECK(rendered("llama3") ==
        "<s><|start_header_id|>system<|end_header_id|>\n\nBe kind.<|eot_id|>"
        "<|start_header_id|>user<|end_header_id|>\n\nHello<|eot_id|>"
        "<|start_header_id|>assistant<|end_header_id|>\n\nHi<|eot_id|>");
}

TEST_CASE("names of speakers that are known here need no counterpart, others are a problem") {
  const auto rows = [](const std::string& roles) {
    return changed(kRows, "  - path: rows.jsonl\n    type: chat_template\n    roles: " + roles + "\n");
  };
  CHECK_NOTHROW(
      settings_of(rows("{user: [human, user], assistant: [gpt], system: [system], narrator: [narrator]}")));
  CHECK_THROWS_WITH(settings_of(rows("{assistant: [gpt, agent]}")),
                    Contains("roles.assistant") && Contains("'agent'") && Contains("rename it in the rows"));
}

TEST_CASE("what exists beside axolotl's config is no name of the Hub") {
  const config::Settings s = settings_of(
      changed(kRows, "  - path: tests/convert\n    type: completion\n"));  // from the project's folder
  CHECK(s.data.train.path == "tests/convert");
}

TEST_CASE("several data sets become several sources") {
  const config::Settings s = settings_of(
      changed(kRows, kRows + "  - path: more/rows\n    type: alpaca\n    field_output: answer\n"));
  REQUIRE(s.data.train.sources.size() == 2);
  CHECK(s.data.train.sources[0].path == "hub:some/alpaca-rows");
  CHECK(s.data.train.sources[1].columns.at("output") == "answer");
}

TEST_CASE("what differs in axolotl's numbers stands in the file") {
  CHECK_THAT(yaml_of(changed("adamw_torch_fused", "adamw_bnb_8bit")),
             Contains("# Differs: the optimizer's moments"));
  CHECK_THAT(yaml_of(changed("load_in_4bit: false", "load_in_8bit: true")),
             Contains("# Differs: the base is held"));
  CHECK_THAT(yaml_of(changed("load_in_4bit: false",
                             "load_in_4bit: true\nbnb_config_kwargs: { bnb_4bit_use_double_quant: false }")),
             Contains("# Differs: the scales of the base's blocks of 4 bits"));
  CHECK_THAT(yaml_of(kConfig), Contains("#   wandb_project: birds") && Contains("#   flash_attention: true"));
}

TEST_CASE("TensorBoard's events are written where axolotl wrote them") {
  CHECK_FALSE(settings_of(kConfig).metrics.tensorboard);
  CHECK(settings_of(kConfig + "use_tensorboard: true\n").metrics.tensorboard);
}

TEST_CASE("a regular expression and all linear modules are targets too") {
  const std::string list = "lora_target_modules:\n  - q_proj\n  - v_proj\n";
  CHECK(settings_of(changed(list, "lora_target_linear: true\n")).lora.target_modules ==
        std::vector<std::string>{"all-linear"});
  CHECK(settings_of(changed(list, "lora_target_modules: '.*[.][qv]_proj'\n")).lora.target_modules ==
        std::vector<std::string>{".*[.][qv]_proj"});
  CHECK_THAT(refusal(changed(list, "")), Contains("lora_target_modules is missing"));
  const auto targets = [&](const std::string& modules) {
    return settings_of(changed(list, "lora_target_modules: " + modules + "\n")).lora.target_modules;
  };
  CHECK(targets(R"(['layers.[\d]+.(up|down)_proj'])") ==
        std::vector<std::string>{R"(layers.[\d]+.(up|down)_proj)"});
  CHECK(targets("[q_proj, 'a, b: c']") == std::vector<std::string>{"q_proj", "a, b: c"});
}

TEST_CASE("parameters of experts are targets beside modules or alone") {
  const std::string list = "lora_target_modules:\n  - q_proj\n  - v_proj\n";
  const std::string parameters = "lora_target_parameters:\n  - mlp.experts.gate_up_proj\n";
  const std::vector<std::string> names{"mlp.experts.gate_up_proj"};
  const auto targets = [&](const std::string& both) {
    std::string text = changed("lora_dropout: 0.05", "lora_dropout: 0");
    return settings_of(text.replace(text.find(list), list.size(), both)).lora;
  };
  CHECK(targets(list + parameters).target_parameters == names);
  CHECK(targets(list + parameters).target_modules.size() == 2);
  const auto alone = targets(parameters);
  CHECK(alone.target_parameters == names);
  CHECK(alone.target_modules.empty());
}

TEST_CASE("modules beside all linear ones are refused where they aren't surely among them") {
  const std::string list = "lora_target_modules:\n  - q_proj\n  - v_proj\n";
  const std::string linear = "lora_target_linear: true\n";
  CHECK(settings_of(changed(list, linear + list)).lora.targets_all_linear());
  CHECK_THAT(refusal(changed(list, linear + list + "  - lm_head\n")),
             Contains("lora_target_modules names 'lm_head' beside lora_target_linear"));
  CHECK_THAT(refusal(changed(list, linear + "lora_target_modules: '.*_proj'\n")), Contains("'.*_proj'"));
}

TEST_CASE("plugins that change how things are computed need no counterpart, others are refused") {
  const std::string known =
      "plugins:\n  - axolotl.integrations.liger.LigerPlugin\n"
      "  - axolotl.integrations.cut_cross_entropy.CutCrossEntropyPlugin\n";
  CHECK_NOTHROW(settings_of(kConfig + known));
  CHECK_THAT(refusal(kConfig + known + "  - axolotl.integrations.spectrum.SpectrumPlugin\n"),
             Contains("plugins names 'axolotl.integrations.spectrum.SpectrumPlugin'"));
}

TEST_CASE("axolotl's warm-up as a part of all steps is rounded otherwise, and the file says so") {
  const auto rounded = Contains("that axolotl rounds down");
  CHECK_THAT(yaml_of(kConfig), rounded && !Contains("100 of more"));
  CHECK_THAT(yaml_of(changed("warmup_ratio: 0.1\n", "")), rounded && Contains("100 of more"));
  CHECK_THAT(yaml_of(changed("warmup_ratio: 0.1", "warmup_ratio: 0.0")), !rounded);
  CHECK_THAT(yaml_of(changed("warmup_ratio: 0.1", "warmup_steps: 7")), !rounded);
  CHECK(settings_of(changed("warmup_ratio: 0.1", "warmup_steps: 1")).lr_scheduler.warmup_steps == 2);
}

TEST_CASE("steps between axolotl's validations are converted where rows are held out") {
  const std::string steps = "\neval_steps: 50";
  CHECK(settings_of(changed("val_set_size: 0.1", "val_set_size: 0.1" + steps)).data.validation.every_steps ==
        50);
  const std::string none = changed("val_set_size: 0.1", "val_set_size: 0" + steps);
  CHECK_FALSE(settings_of(none).data.validation.every_steps);
  CHECK_THAT(yaml_of(none), Contains("#   eval_steps: 50 - nothing is validated"));
}

TEST_CASE("fp16 comes before a bf16 that axolotl would choose, but not before one that is set") {
  using Preset = config::PrecisionPreset;
  const auto preset = [](const std::string& to) {
    return settings_of(changed("bf16: auto\n", to)).precision.preset;
  };
  CHECK(preset("bf16: auto\n") == Preset::kBf16);
  CHECK(preset("fp16: true\n") == Preset::kFp16);
  CHECK(preset("bf16: auto\nfp16: true\n") == Preset::kFp16);
  CHECK(preset("bf16: true\nfp16: true\n") == Preset::kBf16);
  CHECK(preset("bf16: false\n") == Preset::kFp32);
}

TEST_CASE("the adapter that a converted run keeps is the one that axolotl keeps") {
  const auto keeps_best = [](const std::string& more) {
    return settings_of(changed("evals_per_epoch: 4\n", more)).data.validation.keep_best;
  };
  CHECK_FALSE(keeps_best(""));
  CHECK_FALSE(keeps_best("evals_per_epoch: 4\n"));
  CHECK(keeps_best("evals_per_epoch: 4\nsaves_per_epoch: 2\n"));
  CHECK_FALSE(keeps_best("evals_per_epoch: 2\nsaves_per_epoch: 4\n"));
  CHECK(keeps_best("eval_steps: 10\nsave_steps: 20\n"));
  CHECK_FALSE(keeps_best("evals_per_epoch: 0\nsaves_per_epoch: 2\n"));
  CHECK_FALSE(keeps_best("eval_steps: 10\nsave_steps: 0\n"));
  const auto in_one_epoch = [](const std::string& more) {
    return settings_of(changed("num_epochs: 2", "num_epochs: 1\n" + more)).data.validation.keep_best;
  };
  CHECK_FALSE(in_one_epoch("saves_per_epoch: 1"));  // one at the end only
  CHECK(in_one_epoch("saves_per_epoch: 2"));
  CHECK_FALSE(keeps_best("eval_steps: 20\nsave_steps: 30\n"));
  CHECK_FALSE(keeps_best("eval_steps: 10\nsave_steps: 20\nload_best_model_at_end: false\n"));
  CHECK(keeps_best("eval_steps: 10\nsave_steps: 20\nearly_stopping_patience: 3\n"));
  const std::string unvalidated = changed("val_set_size: 0.1", "val_set_size: 0\nearly_stopping_patience: 3");
  CHECK_FALSE(settings_of(unvalidated).data.validation.patience.has_value());
  CHECK_THAT(yaml_of(unvalidated), Contains("early_stopping_patience: 3 - nothing is validated"));
}

TEST_CASE("axolotl's other kinds of training are refused by name") {
  CHECK_THAT(refusal(kConfig + "rl: dpo\n"), Contains("preferences") && Contains("dpo"));
  CHECK_THAT(refusal(kConfig + "processor_type: AutoProcessor\n"), Contains("multimodal"));
  CHECK_THAT(refusal(changed("adapter: lora", "adapter:")), Contains("all weights"));
  CHECK_THAT(refusal(changed("adapter: lora", "adapter: llama-adapter")), Contains("llama-adapter"));
}

TEST_CASE("what would change axolotl's result is an error with its line") {
  for (const auto& [from, to, says] : std::vector<std::array<std::string, 3>>{
           {"adamw_torch_fused", "lion_8bit", "optimizer is 'lion_8bit'"},
           {"lr_scheduler: cosine", "lr_scheduler: rex", "lr_scheduler is 'rex'"},
           {"type: alpaca", "type: gpteacher", "a.yml:5: datasets.0.type is 'gpteacher'"},
           {"type: alpaca", "type: alpaca\n    shards: 3", "datasets.0.shards isn't known here"},
           {"split: train", "split: 'train[:5%]'", "datasets.0.split is 'train[:5%]'"},
           {"val_set_size: 0.1", "val_set_size: 200", "val_set_size counts rows"},
           {"num_epochs: 2", "num_epochs: 0.5", "num_epochs isn't a whole number"},
           {"num_epochs: 2", "num_epochs: 1e300", "training.epochs: expected"},
           {"num_epochs: 2", "num_epochs: 2\nmax_steps: -1",
            "max_steps is -1, expected an integer, at least"},
           {"micro_batch_size: 5", "micro_batch_size: 99999999999", "batch.global: expected an integer"},
           {"pad_token", "eos_token", "special_tokens.eos_token can't be changed"},
           {"learning_rate: 3e-4\n", "", "learning_rate is missing"},
           {"lora_r: 8", "lora_r: 8\nrelora: true", "relora isn't known here"},
           {"datasets:\n" + kRows, "datasets: rows.jsonl\n", "datasets is 'rows.jsonl', expected a list"}})
    CHECK_THAT(refusal(changed(from, to)), Contains(says));
  CHECK_THAT(refusal(changed("type: alpaca", "type: chat_template") + "chat_template: qwen3\n"),
             Contains("chat_template is 'qwen3'"));
}
