#include "config/schema.h"

#include <algorithm>

#include "config/peer_names.h"
#include "config/source_rule.h"

namespace lorikeet::config {
namespace {

constexpr std::int64_t kMostTokens = std::int64_t{1} << 31;
constexpr std::int64_t kMostRows = std::int64_t{1} << 31;

// The words that config/memory_saving.h has for these values.
template <typename E>
ChoiceRule<E> choice_of(std::initializer_list<E> values) {
  ChoiceRule<E> rule;
  for (const E& value : values) rule.choices.push_back({name_of(value), value});
  return rule;
}

void declare_model(Schema& schema) {
  SectionBuilder<ModelSettings>(
      schema, "model", [](Settings& s) -> ModelSettings& { return s.model; }, "The base model.")
      .field("path", &ModelSettings::path, path("a folder, or hub:REPO"),
             "A checkpoint in Hugging Face's format: config.json, safetensors, tokenizer.")
      .required()
      .field(
          "add_tokens", &ModelSettings::add_tokens, ListRule<TextRule>{.rule = text("a token's text")},
          "Words that the tokenizer gets as tokens of their own, wherever a row has them; the embedding and "
          "the head get a row for each and are trained whole.")
      .field("add_special_tokens", &ModelSettings::add_special_tokens,
             ListRule<TextRule>{.rule = text("a token's text")},
             "Control tokens that it gets likewise (a chat template's): what rows say never becomes one.");
}

void declare_lora(Schema& schema) {
  SectionBuilder<LoraSettings>(
      schema, "lora", [](Settings& s) -> LoraSettings& { return s.lora; }, "The adapter that is trained.")
      .field("rank", &LoraSettings::rank, integer(1, 65536), "Rank of the adapter's two factors.")
      .field("alpha", &LoraSettings::alpha, NumberRule{.above = 0, .at_most = 1e6},
             "The adapter's output is scaled by alpha / rank.")
      .field("dropout", &LoraSettings::dropout, NumberRule{.at_least = 0, .below = 1},
             "Probability with which an input feature of the adapter is dropped.")
      .field("target_modules", &LoraSettings::target_modules,
             ListRule<TextRule>{.rule = text("a module's name, a regular expression or all-linear"),
                                .scalar_too = true},
             "Modules that get an adapter; all-linear is every linear one but the head, routers and routed "
             "experts. A name is the module's or its end after a dot (`q_proj`, `layers.0.mlp.up_proj`); a "
             "regular expression stands alone and matches whole names (`'.*\\.(q|v)_proj'`).")
      .field(
          "target_parameters", &LoraSettings::target_parameters,
          ListRule<TextRule>{.rule = text("a parameter's name"), .scalar_too = true},
          "Parameters that hold all experts of a layer, as transformers 5 has them, by their names or the "
          "ends "
          "of these after a dot (`[mlp.experts.gate_up_proj, mlp.experts.down_proj]`): each expert gets an "
          "adapter on its matrix, beside what target_modules names.")
      .field("exclude_modules", &LoraSettings::exclude_modules,
             ListRule<TextRule>{.rule = text("a module's name or a regular expression"), .scalar_too = true},
             "Modules that get none though target_modules names them.")
      .field("layers_to_transform", &LoraSettings::layers_to_transform,
             ListRule<IntegerRule>{.rule = integer(0, 65535), .scalar_too = true},
             "The layers whose modules get an adapter, counted from 0; [] for all.")
      .field("rank_pattern", &LoraSettings::rank_pattern, MapRule<IntegerRule>{integer(1, 65536)},
             "Other ranks by name or regular expression (`{down_proj: 32, 'layers\\.[01]\\..*': 4}`), which "
             "a module's name or its end after a dot matches; the first that does counts.")
      .field("alpha_pattern", &LoraSettings::alpha_pattern,
             MapRule<NumberRule>{NumberRule{.above = 0, .at_most = 1e6}}, "Other alphas, likewise.")
      .field("modules_to_save", &LoraSettings::modules_to_save,
             ListRule<TextRule>{.rule = text("a module's name"), .scalar_too = true},
             "Of the embedding and the head (`[embed_tokens, lm_head]`), those whose whole table is trained "
             "instead of an adapter.")
      .field(
          "ensure_weight_tying", &LoraSettings::ensure_weight_tying, flag(),
          "Where the head shares the embedding's table, either name in modules_to_save trains the one table "
          "for both; false trains a copy for each that is named.")
      .field("use_rslora", &LoraSettings::use_rslora, flag(), "Scale by alpha / sqrt(rank) instead.")
      .field("use_dora", &LoraSettings::use_dora, flag(),
             "Train the length of each row of a weight apart from its direction (DoRA).")
      .field("freeze_a", &LoraSettings::freeze_a, flag(),
             "Train lora_B alone, lora_A stays as it starts (LoRA-FA).")
      .field(
          "init", &LoraSettings::init,
          path("kaiming, gaussian, pissa, pissa_niter_N, olora or an adapter's folder"),
          "How the adapter starts: lora_B at zero (kaiming, gaussian), or both as a part of the weight, "
          "which is "
          "subtracted (pissa, by N steps of subspace iteration with pissa_niter_N; olora); or a PEFT adapter "
          "folder to go on from.");
}

void declare_data(Schema& schema) {
  SectionBuilder<TrainDataSettings>(
      schema, "data.train", [](Settings& s) -> TrainDataSettings& { return s.data.train; },
      "The training rows.")
      .field("path", &TrainDataSettings::path,
             path("a file, a folder, a pattern such as 'rows/*.parquet', or hub:REPO/FILE"),
             "JSON lines, a JSON array, CSV, TSV, Parquet or Arrow; text also gzipped or zstd-compressed.")
      .field("preset", &TrainDataSettings::preset, nullable(text("a name that docs/data.md lists")),
             "A public data set that the files are of: stands for its format, columns and prompt.")
      .field("format", &TrainDataSettings::format,
             ChoiceRule<DataFormat>{{{"auto", DataFormat::kAuto},
                                     {"alpaca", DataFormat::kAlpaca},
                                     {"chat", DataFormat::kChat},
                                     {"sharegpt", DataFormat::kShareGpt},
                                     {"instruct", DataFormat::kInstruct},
                                     {"text", DataFormat::kText},
                                     {"tokens", DataFormat::kTokens}}},
             "What a row holds; auto finds out and says which.")
      .field(
          "columns", &TrainDataSettings::columns, TextMapRule{},
          "Other names of the format's columns, e.g. {prompt: question, completion: answer}; of keys inside "
          "turns too: {messages: dialogue, role: speaker, content: text}.")
      .field("prompt", &TrainDataSettings::prompt, nullable(text("a text with columns' names in braces")),
             "For any table: what the prompt is, e.g. 'Translate: {english}'; a brace itself is doubled.")
      .field("completion", &TrainDataSettings::completion,
             nullable(text("a text with columns' names in braces")),
             "What the answer to `prompt` is; null: the column completion, or what columns calls so.")
      .field("split", &TrainDataSettings::split, nullable(text("train, validation, test, ...")),
             "Which files of a folder; null: those of train, or all where no name shows a split.")
      .field("limit", &TrainDataSettings::limit, nullable(integer(1)), "Only so many rows, the first ones.")
      .field("remove_duplicates", &TrainDataSettings::remove_duplicates, flag(),
             "Keep one of the examples that have the same tokens (counted).")
      .field(
          "weight", &TrainDataSettings::weight, nullable(NumberRule{.above = 0, .at_most = 1e6}),
          "In an entry of `sources`: its share of the mixture, against the other entries' (1 if only others "
          "have one); null in all of them: every row of each once.")
      .field(
          "sources", &TrainDataSettings::sources, SourceListRule{},
          "Several sources instead of one, each with its own of the settings above and below; also written "
          "as a list in the place of this section, `train: [{path: a.jsonl}, {path: b.parquet}]`.")
      .field("mix_by", &TrainDataSettings::mix_by,
             ChoiceRule<MixBy>{{{"examples", MixBy::kExamples}, {"tokens", MixBy::kTokens}}},
             "What the shares of weights are counted in.")
      .field("stopping_strategy", &TrainDataSettings::stopping_strategy,
             ChoiceRule<StoppingStrategy>{{{"first_exhausted", StoppingStrategy::kFirstExhausted},
                                           {"all_exhausted", StoppingStrategy::kAllExhausted}}},
             "How large a weighted mixture is: as far as no source repeats, or until every source was used "
             "up, with the others repeated.")
      .exclusive({"path", "train.jsonl"}, {"sources", "[]"}, /*needed=*/false);

  SectionBuilder<WhereSettings>(
      schema, "data.train.where", [](Settings& s) -> WhereSettings& { return s.data.train.where; },
      "Rows of other lengths are left out, and counted.")
      .field("min_tokens", &WhereSettings::min_tokens, nullable(integer(1)), "Fewest tokens of a row.")
      .field("max_tokens", &WhereSettings::max_tokens, nullable(integer(1)),
             "Most tokens of a row, fewer than data.max_seq_len (for that length itself there is overlong: "
             "drop).");

  SectionBuilder<ValidationSettings>(
      schema, "data.validation", [](Settings& s) -> ValidationSettings& { return s.data.validation; },
      "Held-out rows; off unless path or fraction is set.")
      .field("path", &ValidationSettings::path,
             nullable(path("a file, a folder, a pattern, or hub:REPO/FILE")),
             "Rows of the same format as the training rows.")
      .field("split", &ValidationSettings::split, nullable(text("train, validation, test, ...")),
             "Which files of the folder `path`; null as for data.train.split.")
      .field("fraction", &ValidationSettings::fraction, NumberRule{.at_least = 0, .below = 1},
             "Part of the training rows to hold out instead of a file.")
      .field("every_steps", &ValidationSettings::every_steps, nullable(integer(1)),
             "Steps between evaluations; null: at the end of each epoch.")
      .field("keep_best", &ValidationSettings::keep_best, flag(),
             "Keep the adapter with the lowest validation loss as the result.")
      .field("patience", &ValidationSettings::patience, nullable(integer(1)),
             "Stop after this many evaluations in a row without a new best.")
      .exclusive({"path", "null"}, {"fraction", "0"}, /*needed=*/false);

  SectionBuilder<DataSettings>(
      schema, "data", [](Settings& s) -> DataSettings& { return s.data; }, "How rows become tokens.")
      .field("max_seq_len", &DataSettings::max_seq_len, integer(2, std::int64_t{1} << 24),
             "Longest example in tokens.")
      .field("overlong", &DataSettings::overlong,
             ChoiceRule<Overlong>{
                 {{"truncate", Overlong::kTruncate}, {"drop", Overlong::kDrop}, {"error", Overlong::kError}}},
             "What happens to longer ones (counted); text is split into chunks instead.")
      .field("packing", &DataSettings::packing, flag(),
             "Put several examples into one row; never changes the result, only the speed.")
      .field("shuffle", &DataSettings::shuffle, flag(), "Another order each epoch, fixed by the seed.")
      .field(
          "train_on", &DataSettings::train_on,
          ChoiceRule<TrainOn>{{{"roles", TrainOn::kRoles}, {"last", TrainOn::kLast}, {"all", TrainOn::kAll}}},
          "What the loss is taken on: all that the assistant says, its last turn alone, or every token.")
      .field("train_on_prompt", &DataSettings::train_on_prompt, nullable(flag()),
             "The old name of train_on: true is all, false is roles.")
      .field("chat_template", &DataSettings::chat_template,
             path("auto, a built-in's name, a Jinja file or a folder with one"),
             "How messages are written as text; auto takes the checkpoint's own.")
      .field("template_date", &DataSettings::template_date, text("a day such as 2024-07-26"),
             "The day that templates which write today's date take for today.")
      .field(
          "cache_dir", &DataSettings::cache_dir, nullable(path("a folder")),
          "Where tokenised data is kept, readable for you alone: a folder that is absent is made with mode "
          "0700, one that is there is used and left as it is (not where others may replace its files); null: "
          "lorikeet under XDG_CACHE_HOME.")
      .same_numbers();
}

void declare_batch(Schema& schema) {
  SectionBuilder<BatchSettings>(
      schema, "batch", [](Settings& s) -> BatchSettings& { return s.batch; },
      "What one optimizer step takes in (global, global_tokens: exactly one) and how it is cut up.")
      .field("global", &BatchSettings::global, nullable(integer(1, kMostRows)),
             "Examples in a step, over all devices.")
      .field("global_tokens", &BatchSettings::global_tokens, nullable(integer(1, kMostTokens)),
             "Tokens in a step instead of examples.")
      .field("micro", &BatchSettings::micro, nullable(integer(1, kMostRows)),
             "Most rows in one forward pass.")
      .field("micro_tokens", &BatchSettings::micro_tokens, or_auto(integer(1, kMostTokens)),
             "Most tokens in one forward pass; auto: by the device.")
      .exclusive({"global", "null"}, {"global_tokens", "null"}, /*needed=*/true);
}

void declare_training(Schema& schema) {
  SectionBuilder<TrainingSettings>(
      schema, "training", [](Settings& s) -> TrainingSettings& { return s.training; }, "The loop.")
      .field("epochs", &TrainingSettings::epochs, integer(1, 1000000), "Passes over the training rows.")
      .field("max_steps", &TrainingSettings::max_steps, nullable(integer(1, kMostRows)),
             "Optimizer steps, through as many epochs as they take; null: as many as `epochs` have.")
      .field("seed", &TrainingSettings::seed, integer(0), "Fixes initialisation, order and dropout.")
      .field("clip_grad_norm", &TrainingSettings::clip_grad_norm, nullable(NumberRule{.above = 0}),
             "Largest norm of the whole gradient; null: no clipping.")
      .field("activation_checkpointing", &TrainingSettings::activation_checkpointing,
             or_auto(choice_of({ActivationCheckpointing::kNone, ActivationCheckpointing::kMlp,
                                ActivationCheckpointing::kFull})),
             "What is computed again in the backward pass instead of being kept: mlp, the MLPs' gate and up "
             "projections (about a quarter more work); full, whole layers (nearly half more). auto: the "
             "fastest that fits.")
      .same_numbers()
      .field("offload", &TrainingSettings::offload,
             or_auto(choice_of({Offload{}, Offload{.activations = true}, Offload{.weights = true},
                                Offload{.activations = true, .weights = true}})),
             "What lies in the host's memory while a GPU doesn't use it: what layers keep for their backward "
             "pass, the frozen matrices. auto: the fastest that fits.")
      .same_numbers()
      .field("deterministic", &TrainingSettings::deterministic, flag(),
             "Only algorithms that give the same bits each time, even where slower.")
      .field(
          "cuda_graphs", &TrainingSettings::cuda_graphs, flag(),
          "Micro-steps whose shapes repeat are recorded as CUDA graphs on a GPU, and launched as one. "
          "Takes a micro-step's memory once more; not with lora.dropout, lora.use_dora or training.offload.")
      .same_numbers();
}

void declare_optimizer(Schema& schema) {
  SectionBuilder<OptimizerSettings>(
      schema, "optimizer", [](Settings& s) -> OptimizerSettings& { return s.optimizer; }, "PyTorch's AdamW.")
      .field("name", &OptimizerSettings::name, ChoiceRule<OptimizerName>{{{"adamw", OptimizerName::kAdamW}}},
             "The optimizer.")
      .field("lr", &OptimizerSettings::lr, NumberRule{.above = 0, .at_most = 1000}, "Peak learning rate.")
      .field("betas", &OptimizerSettings::betas,
             TupleRule<NumberRule, 2>{NumberRule{.at_least = 0, .below = 1}}, "Decay of the two moments.")
      .field("eps", &OptimizerSettings::eps, NumberRule{.above = 0, .at_most = 1},
             "Added to the root of the second moment.")
      .field("loraplus_lr_ratio", &OptimizerSettings::loraplus_lr_ratio,
             NumberRule{.above = 0, .at_most = 1e6},
             "The learning rate of lora_B is this times lr (LoRA+; its authors advise about 16).")
      .field("weight_decay", &OptimizerSettings::weight_decay, NumberRule{.at_least = 0, .at_most = 1000},
             "Decoupled weight decay.");

  SectionBuilder<SchedulerSettings>(
      schema, "lr_scheduler", [](Settings& s) -> SchedulerSettings& { return s.lr_scheduler; },
      "The learning rate over the steps, as in Hugging Face's schedules.")
      .field("name", &SchedulerSettings::name,
             ChoiceRule<SchedulerName>{{{"cosine", SchedulerName::kCosine},
                                        {"linear", SchedulerName::kLinear},
                                        {"constant", SchedulerName::kConstant}}},
             "Shape after the warm-up.")
      .field("warmup_ratio", &SchedulerSettings::warmup_ratio,
             nullable(NumberRule{.at_least = 0, .below = 1}),
             "Part of all steps in which the rate rises from 0.")
      .field("warmup_steps", &SchedulerSettings::warmup_steps, nullable(integer(0, kMostRows)),
             "The same as a number of steps.")
      .field("min_lr", &SchedulerSettings::min_lr, NumberRule{.at_least = 0},
             "Learning rate at the end of cosine and linear.")
      .exclusive({"warmup_ratio", "null"}, {"warmup_steps", "null"}, /*needed=*/false);
}

void declare_precision(Schema& schema) {
  const ChoiceRule<BaseStorage> storage{{{"bf16", BaseStorage::kBF16},
                                         {"fp32", BaseStorage::kF32},
                                         {"fp16", BaseStorage::kF16},
                                         {"nf4", BaseStorage::kNF4},
                                         {"fp8", BaseStorage::kF8}}};
  const ChoiceRule<DType> compute{{{"bf16", DType::kBF16}, {"fp32", DType::kF32}, {"fp16", DType::kF16}}};
  const ChoiceRule<DType> sums{{{"fp32", DType::kF32}, {"bf16", DType::kBF16}}};
  const ChoiceRule<Matmul> matmul{{{"fp32", Matmul::kFp32},
                                   {"tf32", Matmul::kTf32},
                                   {"native", Matmul::kNative},
                                   {"widened", Matmul::kWidened},
                                   {"fp8", Matmul::kFp8}}};
  SectionBuilder<PrecisionSettings>(
      schema, "precision", [](Settings& s) -> PrecisionSettings& { return s.precision; },
      "Which number formats are used: a preset, and overrides of its parts.")
      .field("preset", &PrecisionSettings::preset,
             ChoiceRule<PrecisionPreset>{{{"bf16", PrecisionPreset::kBf16},
                                          {"fp32", PrecisionPreset::kFp32},
                                          {"tf32", PrecisionPreset::kTf32},
                                          {"fp16", PrecisionPreset::kFp16}}},
             "bf16, fp16: frozen weights and products in it, adapter, optimizer and sums in fp32; fp32; "
             "tf32: fp32 with "
             "faster, rounded products on a GPU.")
      .field("base_storage", &PrecisionSettings::base_storage, nullable(storage),
             "Frozen weights in memory. nf4: those of linear modules in 4 bits (QLoRA); fp8: in 8 bits "
             "(e4m3), a "
             "scale for each row; embedding, head and norms stay as the preset says.")
      .field("compute", &PrecisionSettings::compute, nullable(compute), "Activations and products.")
      .field("adapter", &PrecisionSettings::adapter, nullable(sums),
             "Adapter, its gradients and optimizer state.")
      .field("reduce", &PrecisionSettings::reduce, nullable(sums), "Sums of gradients over devices.")
      .field("matmul", &PrecisionSettings::matmul, nullable(matmul),
             "Products of fp32 matrices on a GPU: exact, or of operands rounded to TF32 (tf32). Products of "
             "16-bit matrices on a CPU: native, or widened to fp32 first; null: the faster of the two, "
             "measured once a machine. fp8: forward products with frozen weights in fp8, activations "
             "quantised too.");
}

void declare_run(Schema& schema) {
  SectionBuilder<Settings>(
      schema, "", [](Settings& s) -> Settings& { return s; }, "", /*changes_numbers=*/false)
      .field("device", &Settings::device, DeviceRule{}, "Where to run; auto: the best GPU, else the CPU.");

  SectionBuilder<DistributedSettings>(
      schema, "distributed", [](Settings& s) -> DistributedSettings& { return s.distributed; },
      "More than one device; a run on a single one ignores this section.", /*changes_numbers=*/false)
      .field("strategy", &DistributedSettings::strategy,
             ChoiceRule<Strategy>{{{"auto", Strategy::kAuto},
                                   {"replicate", Strategy::kReplicate},
                                   {"shard", Strategy::kShard},
                                   {"hybrid", Strategy::kHybrid}}},
             "What each device holds of the frozen weights: all, a part, or a part of its node's copy.")
      .field("shard_degree", &DistributedSettings::shard_degree, or_auto(integer(1, 1 << 20)),
             "Devices that share one copy of the weights, for hybrid; auto: those of a node.")
      .field("interface", &DistributedSettings::interface, nullable(text("a network interface's name")),
             "Network interface between nodes; null: that towards the store.")
      .field("watchdog_seconds", &DistributedSettings::watchdog_seconds, integer(1, 1 << 30),
             "A collective that takes longer ends the run.")
      .field("verify", &DistributedSettings::verify, flag(), "Check that all devices hold equal adapters.");
}

void declare_output(Schema& schema) {
  SectionBuilder<CheckpointSettings>(
      schema, "checkpoint", [](Settings& s) -> CheckpointSettings& { return s.checkpoint; },
      "What is written, and how a stopped run goes on.", /*changes_numbers=*/false)
      .field("output_dir", &CheckpointSettings::output_dir, path("a folder"), "Folder of the run's results.")
      .default_note("runs/<the config file's name>")
      .field("save_every_steps", &CheckpointSettings::save_every_steps, nullable(integer(1)),
             "Steps between checkpoints; null: by epochs only.")
      .field("save_every_epochs", &CheckpointSettings::save_every_epochs, nullable(integer(1)),
             "Epochs between checkpoints; null: by steps only.")
      .field("keep_last", &CheckpointSettings::keep_last, nullable(integer(1)),
             "Checkpoints to keep; null: all.")
      .field("resume", &CheckpointSettings::resume,
             ChoiceRule<Resume>{{{"auto", Resume::kAuto}, {"never", Resume::kNever}}},
             "auto goes on with the same run in output_dir; never takes it for an error.")
      .field("overwrite", &CheckpointSettings::overwrite, flag(),
             "Replace another run in output_dir, once the first step of this one is done.")
      .field("save_merged", &CheckpointSettings::save_merged, flag(),
             "Write the base with the adapter merged into it at the end, too.");

  SectionBuilder<MetricsSettings>(
      schema, "metrics", [](Settings& s) -> MetricsSettings& { return s.metrics; },
      "What is measured and logged.", /*changes_numbers=*/false)
      .field("log_every_steps", &MetricsSettings::log_every_steps, integer(1), "Steps between printed lines.")
      .field("tensorboard", &MetricsSettings::tensorboard, flag(),
             "Write the numbers of metrics.jsonl as TensorBoard event files too, in checkpoint.output_dir.")
      .field("profile_steps", &MetricsSettings::profile_steps, list_of(integer(1)),
             "Steps (from 1) of which a Chrome trace is written: trace_step_N.json.");
}

Schema make_schema() {
  Schema schema;
  declare_model(schema);
  declare_lora(schema);
  declare_data(schema);
  declare_batch(schema);
  declare_training(schema);
  declare_optimizer(schema);
  declare_precision(schema);
  declare_run(schema);
  declare_output(schema);
  return schema;
}

// The part of `name` directly under `section`, or nothing when it lies elsewhere.
std::string_view member_of(std::string_view name, std::string_view section) {
  if (!section.empty()) {
    if (!name.starts_with(section) || name.size() <= section.size() || name[section.size()] != '.') return {};
    name.remove_prefix(section.size() + 1);
  }
  return name.substr(0, name.find('.'));
}

}  // namespace

const Exclusion* Schema::exclusion_of(std::string_view name) const {
  const auto it = std::find_if(exclusions_.begin(), exclusions_.end(), [&](const Exclusion& e) {
    return e.fields[0].name == name || e.fields[1].name == name;
  });
  return it == exclusions_.end() ? nullptr : &*it;
}

const Field* Schema::find(std::string_view name) const {
  const auto it =
      std::find_if(fields_.begin(), fields_.end(), [&](const Field& f) { return f.name == name; });
  return it == fields_.end() ? nullptr : &*it;
}

bool Schema::is_section(std::string_view name) const {
  return std::any_of(sections_.begin(), sections_.end(),
                     [&](const SectionHelp& s) { return s.name == name; });
}

std::vector<std::string> Schema::members(std::string_view section) const {
  std::vector<std::string> out;
  for (const Field& field : fields_) {
    const std::string member(member_of(field.name, section));
    if (!member.empty() && std::find(out.begin(), out.end(), member) == out.end()) out.push_back(member);
  }
  return out;
}

const Field* Schema::find_leaf(std::string_view leaf, std::string_view section) const {
  const Field* elsewhere = nullptr;
  for (const Field& field : fields_) {
    if (field.leaf() != leaf) continue;
    if (!member_of(field.name, section).empty()) return &field;
    if (elsewhere == nullptr) elsewhere = &field;
  }
  return elsewhere;
}

std::string Schema::suggestion(std::string_view section, std::string_view key) const {
  const auto mean = [](const std::string& name) { return " (did you mean '" + name + "'?)"; };
  if (const Field* same = find_leaf(key, section)) return mean(same->name);
  if (auto hint = peer_hint(key)) return *hint;
  const std::vector<std::string> own = members(section);
  if (const auto best = nearest(key, own)) return mean(*best);
  for (const Field& field : fields_) {
    if (nearest(key, {std::string(field.leaf())})) return mean(field.name);
  }
  return " (known here: " + join(own, ", ") + ")";
}

const Schema& schema() {
  static const Schema instance = make_schema();
  return instance;
}

}  // namespace lorikeet::config
