#include "recipes/settings_map.h"

#include <algorithm>
#include <filesystem>
#include <iterator>
#include <optional>

#include "base/error.h"
#include "recipes/best_adapter.h"
#include "recipes/step_traces.h"
#include "train/checkpoint.h"
#include "train/schedule.h"

namespace lorikeet::recipes {
namespace {

const char* format_name(config::DataFormat format) {
  switch (format) {
    case config::DataFormat::kAuto: return "auto";
    case config::DataFormat::kAlpaca: return "alpaca";
    case config::DataFormat::kChat: return "chat";
    case config::DataFormat::kShareGpt: return "sharegpt";
    case config::DataFormat::kInstruct: return "instruct";
    case config::DataFormat::kText: return "text";
    case config::DataFormat::kTokens: return "tokens";
  }
  throw Error("[data.train.format] has an unknown value");
}

data::Overlong overlong(config::Overlong value) {
  switch (value) {
    case config::Overlong::kTruncate: return data::Overlong::kTruncate;
    case config::Overlong::kDrop: return data::Overlong::kDrop;
    case config::Overlong::kError: return data::Overlong::kError;
  }
  throw Error("[data.overlong] has an unknown value");
}

text::TrainOn train_on(config::TrainOn value) {
  switch (value) {
    case config::TrainOn::kRoles: return text::TrainOn::kRoles;
    case config::TrainOn::kLast: return text::TrainOn::kLast;
    case config::TrainOn::kAll: return text::TrainOn::kAll;
  }
  throw Error("[data.train_on] has an unknown value");
}

data::RowOptions row_options(const config::SourceSettings& source) {
  return {.format = format_name(source.format),
          .columns = source.columns,
          .preset = source.preset.value_or(""),
          .prompt = source.prompt,
          .completion = source.completion,
          .split = source.split.value_or(""),
          .limit = source.limit,
          .min_tokens = source.where.min_tokens,
          .max_tokens = source.where.max_tokens,
          .remove_duplicates = source.remove_duplicates};
}

}  // namespace

peft::LoraConfig lora_config(const config::LoraSettings& settings) {
  return {.rank = settings.rank,
          .alpha = settings.alpha,
          .dropout = settings.dropout,
          .use_dora = settings.use_dora,
          .starts_from_base = settings.starts_from_base(),
          .freeze_a = settings.freeze_a,
          .use_rslora = settings.use_rslora,
          .target_modules = settings.target_modules,
          .target_parameters = settings.target_parameters,
          .exclude_modules = settings.exclude_modules,
          .layers_to_transform = settings.layers_to_transform,
          .rank_pattern = settings.rank_pattern,
          .alpha_pattern = settings.alpha_pattern,
          .modules_to_save = settings.modules_to_save,
          .ensure_weight_tying = settings.ensure_weight_tying};
}

text::NewTokens new_tokens(const config::ModelSettings& settings) {
  return {.words = settings.add_tokens, .special = settings.add_special_tokens};
}

data::DataOptions data_options(const config::Settings& settings) {
  const config::DataSettings& d = settings.data;
  data::DataOptions options;
  options.train_path = d.train.path;
  static_cast<data::RowOptions&>(options) = row_options(d.train);
  for (const config::SourceSettings& source : d.train.sources) {
    options.sources.push_back({source.path, row_options(source), source.weight.value_or(1)});
    options.weighted = options.weighted || source.weight.has_value();
  }
  options.mix_by = d.train.mix_by == config::MixBy::kTokens ? data::MixBy::kTokens : data::MixBy::kExamples;
  options.stopping_strategy = d.train.stopping_strategy == config::StoppingStrategy::kAllExhausted
                                  ? data::StoppingStrategy::kAllExhausted
                                  : data::StoppingStrategy::kFirstExhausted;
  options.validation_split = d.validation.split.value_or("");
  options.validation_fraction = d.validation.fraction;
  options.max_seq_len = d.max_seq_len;
  options.overlong = overlong(d.overlong);
  options.train_on = train_on(d.train_on);
  options.chat_template = d.chat_template;
  options.template_date = d.template_date;
  options.seed = static_cast<std::uint64_t>(settings.training.seed);
  if (d.validation.path) options.validation_path = *d.validation.path;
  if (d.cache_dir) options.cache_dir = *d.cache_dir;
  return options;
}

data::DataOptions data_options(const config::Settings& settings, std::int64_t embedding_rows) {
  data::DataOptions options = data_options(settings);
  options.embedding_rows = embedding_rows;
  return options;
}

std::uint64_t output_bytes(const config::Settings& settings, std::int64_t steps, std::int64_t numbers,
                           bool resumed) {
  steps = std::max<std::int64_t>(steps, 0);
  const config::CheckpointSettings& checkpoint = settings.checkpoint;
  std::int64_t kept = 1;
  if (checkpoint.save_every_steps) kept += steps / *checkpoint.save_every_steps;
  if (checkpoint.save_every_epochs) kept += settings.training.epochs / *checkpoint.save_every_epochs;
  kept = std::min(kept, std::max<std::int64_t>(steps, 1));
  if (checkpoint.keep_last) kept = std::min(kept, *checkpoint.keep_last);
  std::int64_t replaced = 0;
  if (resumed) {
    const std::filesystem::path folder = checkpoint.output_dir;
    const std::int64_t there = std::ssize(train::CheckpointStore(folder, "", std::nullopt).steps());
    if (checkpoint.keep_last) kept = std::min(kept, std::max<std::int64_t>(*checkpoint.keep_last - there, 0));
    if (std::filesystem::exists(folder / kBestFolder)) replaced = numbers * 4;
  }
  const std::int64_t of_one = numbers * 12 + (1 << 20);  // values, two moments; and the other files
  return static_cast<std::uint64_t>((kept + 2) * of_one - replaced);
}

data::MicroOptions micro_options(const config::Settings& settings, std::int64_t micro_tokens) {
  return {.micro_tokens = micro_tokens, .micro_rows = settings.batch.micro, .packing = settings.data.packing};
}

std::vector<config::ActivationCheckpointing> all_grades() {
  using Grade = config::ActivationCheckpointing;
  return {Grade::kNone, Grade::kMlp, Grade::kFull};
}

std::vector<config::Offload> offloads_on(at::DeviceType device) {
  if (device == at::kCPU) return {{}};
  return {{}, {.activations = true}, {.weights = true}, {.activations = true, .weights = true}};
}

void require_steps_fit(const config::Settings& settings, std::int64_t total_steps) {
  train::make_schedule(settings.lr_scheduler, settings.optimizer.lr, total_steps);
  StepTraces::require_within(settings.metrics.profile_steps, total_steps);
}

data::SamplerOptions sampler_options(const config::Settings& settings) {
  return {.examples_per_step = settings.batch.global,
          .tokens_per_step = settings.batch.global_tokens,
          .epochs = settings.training.epochs,
          .max_steps = settings.training.max_steps,
          .seed = static_cast<std::uint64_t>(settings.training.seed),
          .shuffle = settings.data.shuffle};
}

train::AdamWOptions adamw_options(const config::Settings& settings) {
  return {.beta1 = settings.optimizer.betas[0],
          .beta2 = settings.optimizer.betas[1],
          .eps = settings.optimizer.eps,
          .weight_decay = settings.optimizer.weight_decay,
          .clip_grad_norm = settings.training.clip_grad_norm.value_or(0),
          .loraplus_lr_ratio = settings.optimizer.loraplus_lr_ratio};
}

}  // namespace lorikeet::recipes
