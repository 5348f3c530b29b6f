#include "base/file.h"
#include "support.h"
#include "support/catch.h"
#include "support/error_text.h"
#include "support/paths.h"

using namespace lorikeet;
using namespace lorikeet::config;
using Catch::Contains;
using test::error_of;
using test::parse;

TEST_CASE("a file that names only the model gets the documented defaults") {
  const Settings s = parse("");
  CHECK(s.model.path == "base");
  CHECK(s.lora.rank == 16);
  CHECK(s.lora.alpha == 32);
  CHECK(s.lora.targets_all_linear());
  CHECK(s.batch.global == 32);
  CHECK_FALSE(s.batch.micro_tokens);
  CHECK(s.optimizer.lr == 2e-4);
  CHECK(s.lr_scheduler.warmup_ratio == 0.03);
  CHECK(s.checkpoint.output_dir == "runs/run");
  CHECK(s.checkpoint.keep_last == 3);
}

TEST_CASE("values of every kind are read") {
  const Settings s = parse(R"(
lora: {rank: 8, alpha: 1.6e1, target_modules: [q_proj, v_proj], use_rslora: true, init: ./first}
data:
  train: {path: rows.jsonl, format: instruct, columns: {prompt: question}}
  validation: {fraction: 0.1, patience: 2}
  overlong: drop
  cache_dir: "12"
batch: {global: 4, micro_tokens: 512}
training: {clip_grad_norm: null, activation_checkpointing: full, seed: 7}
optimizer: {lr: 2e-4, betas: [0.8, 0.95]}
lr_scheduler: {name: linear}
precision: {preset: fp32, base_storage: bf16}
device: cuda:3
)");
  CHECK(s.lora.rank == 8);
  CHECK(s.lora.alpha == 16);
  CHECK(s.lora.target_modules == std::vector<std::string>{"q_proj", "v_proj"});
  CHECK(s.lora.use_rslora);
  CHECK(s.lora.starts_from_folder());
  CHECK(s.data.train.format == DataFormat::kInstruct);
  CHECK(s.data.train.columns.at("prompt") == "question");
  CHECK(s.data.validation.patience == 2);
  CHECK(s.data.overlong == Overlong::kDrop);
  CHECK(s.data.cache_dir == "12");
  CHECK(s.batch.micro_tokens == 512);
  CHECK_FALSE(s.training.clip_grad_norm);
  CHECK(s.training.activation_checkpointing == ActivationCheckpointing::kFull);
  CHECK(s.optimizer.betas[1] == 0.95);
  CHECK(s.lr_scheduler.name == SchedulerName::kLinear);
  CHECK(s.precision.preset == PrecisionPreset::kFp32);
  CHECK(s.precision.base_storage == config::BaseStorage::kBF16);
  CHECK(s.device.index == 3);
}

TEST_CASE("the output folder is named after the config file") {
  const test::TemporaryFolder folder;
  write_file_atomic(folder / "tiny_lora.yaml", "model: {path: base}\n");
  CHECK(load_settings(folder / "tiny_lora.yaml").checkpoint.output_dir == "runs/tiny_lora");
  CHECK(load_settings(folder / "tiny_lora.yaml", {"checkpoint.output_dir=x"}).checkpoint.output_dir == "x");
}

TEST_CASE("all problems of a file are reported together, each with its line") {
  const std::string text = error_of(R"(lora:
  rnak: 8
  rank: sixteen
trainning: {epochs: 1}
optimizer: {lr: -1}
)");
  CHECK_THAT(text, Contains("4 problems in run.yaml"));
  CHECK_THAT(text, Contains("run.yaml:3: unknown key 'lora.rnak' (did you mean 'rank'?)"));
  CHECK_THAT(text, Contains("run.yaml:4: lora.rank: expected an integer from 1 to 65536, got 'sixteen'"));
  CHECK_THAT(text, Contains("run.yaml:5: unknown key 'trainning' (did you mean 'training'?)"));
  CHECK_THAT(text, Contains("run.yaml:6: optimizer.lr: expected a number, above 0"));
}

TEST_CASE("what follows from a value that can't be read is not reported beside it") {
  const auto overridden = [](const std::vector<std::string>& overrides) {
    return error_of(
        "data: { validation: { fraction: 0.1, every_steps: 4, patience: 2 } }\nbatch: { global: 8 }\n",
        overrides);
  };
  CHECK(overridden({"data.validation.fraction=1.5"}) ==
        "[config] override 'data.validation.fraction': data.validation.fraction: expected a number, at least "
        "0, "
        "below 1, got '1.5'");
  CHECK_THAT(overridden({"batch.global=many", "batch.micro=64"}), !Contains("at most batch.global"));
  CHECK_THAT(test::error_text([] { parse_settings("model: a\n", "run.yaml"); }),
             Contains("model is a section") && !Contains("is required"));
  // What has nothing to do with it is.
  CHECK_THAT(overridden({"lora.rank=x", "~data.validation.fraction"}),
             Contains("3 problems") && Contains("data.validation.patience: needs"));
  CHECK_THAT(overridden({"batch.global=many", "batch.global_tokens=x", "lr_scheduler.min_lr=1"}),
             Contains("3 problems") && Contains("lr_scheduler.min_lr: expected at most"));
  CHECK_THAT(overridden({"batch.micro_tokens=x", "batch.micro=64"}),
             Contains("at most batch.global (8), got 64"));
}

TEST_CASE("for another trainer's config there is convert-config") {
  const std::string hint = "`lorikeet convert-config FILE`";
  CHECK_THAT(error_of("base_model: a\ndatasets: []\n"), Contains(hint));
  CHECK_THAT(error_of("tokenizer: { _component_: torchtune.models.llama3.llama3_tokenizer }\n"),
             Contains(hint));
  CHECK_THAT(error_of("checkpoint_dir: a\nlora_r: 8\n"), Contains(hint));
  CHECK_THAT(error_of("lora: { rnk: 8 }\n"), !Contains(hint));
}

TEST_CASE("true and false may begin with capitals, as YAML has it") {
  const auto packing = [](const std::string& value) {
    return parse_settings("model: { path: a }\ndata: { train: { path: b }, packing: " + value + " }\n",
                          "a.yml")
        .data.packing;
  };
  CHECK(packing("True"));
  CHECK_FALSE(packing("FALSE"));
  CHECK_THROWS(packing("tRUE"));
  CHECK_THROWS(packing("'True'"));
}

TEST_CASE("a key in the wrong section is pointed to the right one") {
  CHECK_THAT(error_of("training: {lr: 1}"), Contains("did you mean 'optimizer.lr'?"));
  CHECK_THAT(error_of("data: {path: x}"), Contains("did you mean 'data.train.path'?"));
  CHECK_THAT(error_of("device: {x: 1}"),
             Contains("auto, cpu, cuda, cuda:N, or a GPU's UUID or PCI address, got a mapping"));
  CHECK_THAT(error_of("lora: 3"), Contains("lora is a section"));
  CHECK_THAT(error_of("zzzzzzzz: 3"), Contains("known here: model, lora, data"));
}

TEST_CASE("a key with a dot in the place of nested keys is refused with its line") {
  const std::string text =
      error_of("lora: {rank: 16}\nlora.rank: 8\ndata: {train.path: a}\ndata.train: {}\n", {"lora.rank=4"});
  CHECK_THAT(text, Contains("3 problems"));
  CHECK_THAT(text, Contains("run.yaml:3: 'lora.rank': expected nested keys, as in lora: {rank: ...}"));
  CHECK_THAT(text, Contains("run.yaml:4: 'data.train.path'") && Contains("as in train: {path: ...}"));
  CHECK_THAT(text, Contains("run.yaml:5: 'data.train'"));
  CHECK_THAT(error_of("data.train.columns.prompt: q"), Contains("data: {train: {columns: {prompt: ...}}}"));
  CHECK(parse("lora: {rank_pattern: {layers.0.x: 8}}").lora.rank_pattern[0].first == "layers.0.x");
}

TEST_CASE(
    "settings are read as far as they can be, and what follows from a default in one's place is known") {
  const test::TemporaryFolder folder;
  write_file_atomic(folder / "run.yaml", "lora: {rank: 0, alpha: 8}\ndata: {train: {format: [1]}}\n");
  const PartialSettings read = read_settings(folder / "run.yaml", {"optimizer.lr=1e-3", "lora.alfa=3"});
  CHECK(read.settings.lora.rank == 16);
  CHECK(read.settings.lora.alpha == 8);
  CHECK(read.settings.optimizer.lr == 1e-3);
  CHECK(read.problems.size() == 4);
  CHECK(read.unread == std::set<std::string>{"data.train.format", "lora.rank", "model.path"});
  CHECK(follows_from("line 1: ...; set data.train.format", read.unread));
  CHECK_FALSE(follows_from("line 1: ...; set data.train.formats or lora.rank_pattern", read.unread));
}

TEST_CASE("a required setting that is absent is an error") {
  CHECK_THROWS_WITH(parse_settings("", "run.yaml"), Contains("model.path is required"));
  CHECK_THROWS_WITH(parse_settings("model: {path: null}", "run.yaml"),
                    Contains("model.path: expected a folder, or hub:REPO, got null"));
}

TEST_CASE("values of the wrong type or out of range are refused") {
  const auto [text, message] = GENERATE(table<std::string, std::string>({
      {"lora: {rank: 1.5}", "lora.rank: expected an integer"},
      {"lora: {rank: '8'}", "got the text '8'"},
      {"lora: {rank: 0}", "lora.rank"},
      {"lora: {rank: 99999999999999999999}", "lora.rank"},
      {"lora: {rank: 1_000}", "lora.rank"},
      {"lora: {rank: [8]}", "got a list"},
      {"lora: {alpha: 0}", "above 0"},
      {"lora: {alpha: .nan}", "lora.alpha"},
      {"lora: {alpha: nan}", "lora.alpha"},
      {"lora: {alpha: inf}", "lora.alpha"},
      {"lora: {alpha: 1e999}", "lora.alpha"},
      {"lora: {dropout: 1}", "below 1"},
      {"lora: {use_rslora: yes}", "expected true or false, got 'yes'"},
      {"lora: {target_modules: []}", "lora.target_modules"},
      {"lora: {target_modules: [q_proj, all-linear]}", "leave out the others"},
      {"lora: {target_parameters: [down_proj], dropout: 0.1}", "doesn't go with lora.dropout above 0"},
      {"lora: {target_parameters: [down_proj], use_dora: true}", "doesn't go with lora.use_dora=true"},
      {"lora: {target_parameters: [down_proj], init: pissa}", "a lora.init that starts from the base"},
      {"lora: {rank_pattern: {q_proj: 0}}", "lora.rank_pattern: 'q_proj': expected an integer from 1"},
      {"data: {train: []}", "data.train is a section"},
      {"lora: {init: gausian}", "did you mean 'gaussian'?"},
      {"data: {packing: 1}", "expected true or false"},
      {"data: {train: {format: alpacca}}", "did you mean 'alpaca'?"},
      {"data: {train: {columns: [a]}}", "a mapping of names to names"},
      {"data: {train: {path: ''}}", "expected a file"},
      {"data: {train: {path: \"a\\0b\"}}", "NUL"},
      {"data: {validation: {fraction: 1}}", "below 1"},
      {"data: {validation: {fraction: 0.1, path: v}}", "at most one of them, got both"},
      {"data: {validation: {patience: 1}}", "needs data.validation.path"},
      {"data: {max_seq_len: 1}", "data.max_seq_len"},
      {"batch: {global: null}", "exactly one of them, got neither"},
      {"batch: {global: 8, global_tokens: 8}", "exactly one of them, got both"},
      {"batch: {global: 8, micro: 9}", "batch.micro"},
      {"batch: {micro_tokens: many}", "or auto, got 'many'"},
      {"batch: {micro_tokens: null}", "or auto, got null"},
      {"training: {seed: -1}", "training.seed"},
      {"optimizer: {betas: [0.9]}", "a list of 2"},
      {"optimizer: {name: sgd}", "expected adamw, got 'sgd'"},
      {"lr_scheduler: {warmup_ratio: 0.1, warmup_steps: 3}", "at most one of them, got both"},
      {"lr_scheduler: {warmup_steps: 10}\ntraining: {max_steps: 10}", "fewer than training.max_steps (10)"},
      {"lr_scheduler: {min_lr: 1}", "at most optimizer.lr"},
      {"training: {cuda_graphs: true}\nlora: {dropout: 0.1}",
       "training.cuda_graphs: expected to be false with lora.dropout"},
      {"training: {cuda_graphs: true}\nlora: {use_dora: true}",
       "training.cuda_graphs: expected to be false with lora.use_dora"},
      {"training: {cuda_graphs: true, offload: weights}", "expected training.offload=none"},
      {"training: {cuda_graphs: true}\ndevice: cpu",
       "training.cuda_graphs: expected to be false with device=cpu"},
      {"lr_scheduler: {min_lr: 1e-5, name: constant}", "no effect on a constant rate"},
      {"device: gpu", "expected auto, cpu, cuda, cuda:N, or a GPU's UUID or PCI address"},
      {"device: cuda:-1", "device"},
      {"metrics: {profile_steps: [0]}", "metrics.profile_steps"},
      {"metrics: {profile_steps: 3;4}", "got '3;4'"},
      {"optimizer: {betas: 0.9}", "a list of 2"},
  }));
  INFO(text);
  CHECK_THAT(error_of(text), Contains(message));
}

TEST_CASE("a strategy and the parts of a precision can be written out") {
  CHECK(error_of("lora: {use_dora: false}\nmetrics: {tensorboard: false, profile_steps: []}\n"
                 "distributed: {strategy: hybrid, shard_degree: 2}\n"
                 "precision: {adapter: fp32, reduce: fp32, matmul: fp32}\n") == "no error");
}

TEST_CASE("every part of the precision can be set") {
  const Settings s = parse(
      "precision: {preset: fp16, base_storage: bf16, compute: fp32, adapter: bf16, reduce: bf16, matmul: "
      "tf32}");
  CHECK(s.precision.preset == PrecisionPreset::kFp16);
  CHECK(s.precision.base_storage == config::BaseStorage::kBF16);
  CHECK(s.precision.compute == DType::kF32);
  CHECK(s.precision.adapter == DType::kBF16);
  CHECK(s.precision.reduce == DType::kBF16);
  CHECK(s.precision.matmul == Matmul::kTf32);
  CHECK(parse("precision: {matmul: native}").precision.matmul == Matmul::kNative);
  CHECK(parse("precision: {matmul: widened}").precision.matmul == Matmul::kWidened);
  CHECK(parse("precision: {preset: tf32}").precision.preset == PrecisionPreset::kTf32);
}

TEST_CASE("a field given alone takes the place of the default that excludes it") {
  const Settings tokens = parse("batch: {global_tokens: 4096}");
  CHECK(tokens.batch.global_tokens == 4096);
  CHECK_FALSE(tokens.batch.global);
  const Settings steps = parse("lr_scheduler: {warmup_steps: 5}");
  CHECK(steps.lr_scheduler.warmup_steps == 5);
  CHECK_FALSE(steps.lr_scheduler.warmup_ratio);
}
