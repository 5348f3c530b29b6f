#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/dtype.h"
#include "config/memory_saving.h"

// The typed settings of a run, one struct a section. A member's initialiser is the field's default; its name
// in the file, its range and its help stand in schema.cpp, and nowhere else.
namespace lorikeet::config {

struct ModelSettings {
  std::string path;
  std::vector<std::string> add_tokens, add_special_tokens;
};

struct LoraSettings {
  std::int64_t rank = 16;
  double alpha = 32;
  double dropout = 0;
  /// Names of modules (their last parts), one regular expression, or the one word "all-linear".
  std::vector<std::string> target_modules{"all-linear"};
  /// Names of parameters that hold the matrices of all experts of a layer.
  std::vector<std::string> target_parameters;
  std::vector<std::string> exclude_modules;
  std::vector<std::int64_t> layers_to_transform;
  /// Regular expressions and their modules' ranks and alphas; the first that matches counts.
  std::vector<std::pair<std::string, std::int64_t>> rank_pattern;
  std::vector<std::pair<std::string, double>> alpha_pattern;
  std::vector<std::string> modules_to_save;
  bool ensure_weight_tying = true;
  bool use_rslora = false;
  bool use_dora = false;
  bool freeze_a = false;
  /// "kaiming", "gaussian", "pissa", "pissa_niter_N", "olora" or the folder of a PEFT adapter.
  std::string init = "kaiming";

  bool targets_all_linear() const { return target_modules.size() == 1 && target_modules[0] == "all-linear"; }
  bool starts_from_base() const {
    return init == "pissa" || init == "olora" || pissa_iterations().has_value();
  }
  bool starts_from_folder() const { return init != "kaiming" && init != "gaussian" && !starts_from_base(); }
  /// N of "pissa_niter_N", 0 to 999.
  std::optional<std::int64_t> pissa_iterations() const;
};

enum class DataFormat { kAuto, kAlpaca, kChat, kShareGpt, kInstruct, kText, kTokens };
enum class Overlong { kTruncate, kDrop, kError };

/// Which rows of a source are left out by their length.
struct WhereSettings {
  std::optional<std::int64_t> min_tokens;
  std::optional<std::int64_t> max_tokens;

  bool operator==(const WhereSettings&) const = default;
};

/// Where rows are and how they are read.
struct SourceSettings {
  std::string path = "train.jsonl";
  std::optional<std::string> preset;
  DataFormat format = DataFormat::kAuto;
  /// What the format calls a column -> its name in the file.
  std::map<std::string, std::string> columns;
  std::optional<std::string> prompt;
  std::optional<std::string> completion;
  std::optional<std::string> split;
  std::optional<std::int64_t> limit;
  bool remove_duplicates = false;
  std::optional<double> weight;
  WhereSettings where;

  bool operator==(const SourceSettings&) const = default;
};

enum class MixBy { kExamples, kTokens };
enum class StoppingStrategy { kFirstExhausted, kAllExhausted };

/// One source, or several instead: then its own settings as a source are the defaults.
struct TrainDataSettings : SourceSettings {
  std::vector<SourceSettings> sources;
  MixBy mix_by = MixBy::kExamples;
  StoppingStrategy stopping_strategy = StoppingStrategy::kFirstExhausted;
};

struct ValidationSettings {
  std::optional<std::string> path;
  std::optional<std::string> split;
  double fraction = 0;
  std::optional<std::int64_t> every_steps;
  bool keep_best = true;
  std::optional<std::int64_t> patience;

  bool enabled() const { return path.has_value() || fraction > 0; }
};

enum class TrainOn { kRoles, kLast, kAll };

struct DataSettings {
  TrainDataSettings train;
  ValidationSettings validation;
  std::int64_t max_seq_len = 2048;
  Overlong overlong = Overlong::kTruncate;
  bool packing = true;
  bool shuffle = true;
  TrainOn train_on = TrainOn::kRoles;
  /// The old name of `train_on`: true is all, false is roles. Empty after loading.
  std::optional<bool> train_on_prompt;
  /// "auto", the name of a built-in template, a file, or a folder with a tokenizer's files.
  std::string chat_template = "auto";
  std::string template_date = "2024-07-26";
  std::optional<std::string> cache_dir;
};

/// After loading exactly one of `global` and `global_tokens` has a value.
struct BatchSettings {
  std::optional<std::int64_t> global = 32;
  std::optional<std::int64_t> global_tokens;
  std::optional<std::int64_t> micro;
  /// Empty: "auto".
  std::optional<std::int64_t> micro_tokens;
};

struct TrainingSettings {
  std::int64_t epochs = 1;
  std::optional<std::int64_t> max_steps;
  std::int64_t seed = 42;
  std::optional<double> clip_grad_norm = 1;
  /// Empty: "auto", as of offload.
  std::optional<ActivationCheckpointing> activation_checkpointing = ActivationCheckpointing::kNone;
  std::optional<Offload> offload = Offload{};
  bool deterministic = false;
  bool cuda_graphs = false;
};

enum class OptimizerName { kAdamW };

struct OptimizerSettings {
  OptimizerName name = OptimizerName::kAdamW;
  double lr = 2e-4;
  std::array<double, 2> betas{0.9, 0.999};
  double eps = 1e-8;
  double weight_decay = 0.01;
  double loraplus_lr_ratio = 1;
};

enum class SchedulerName { kCosine, kLinear, kConstant };

/// After loading at most one of `warmup_ratio` and `warmup_steps` has a value; neither: no warm-up.
struct SchedulerSettings {
  SchedulerName name = SchedulerName::kCosine;
  std::optional<double> warmup_ratio = 0.03;
  std::optional<std::int64_t> warmup_steps;
  double min_lr = 0;
};

enum class PrecisionPreset { kBf16, kFp32, kTf32, kFp16 };
/// How matrices are multiplied: fp32 ones on a GPU exactly (kFp32) or with operands rounded to TF32; 16-bit
/// ones on a CPU natively or with operands widened to fp32; 16-bit activations with weights in fp8 in fp8
/// (kFp8). Each is for one compute dtype alone; a CPU's 16-bit ones are chosen by measurement where the
/// setting is empty.
enum class Matmul { kFp32, kTf32, kNative, kWidened, kFp8 };

/// How frozen weights are stored: as numbers, or those of linear modules in 4 or 8 bits and the others as the
/// preset says.
enum class BaseStorage { kBF16, kF32, kF16, kNF4, kF8 };

/// An empty override leaves what the preset says.
struct PrecisionSettings {
  PrecisionPreset preset = PrecisionPreset::kBf16;
  std::optional<BaseStorage> base_storage;
  std::optional<DType> compute;
  std::optional<DType> adapter;
  std::optional<DType> reduce;
  std::optional<Matmul> matmul;
};

struct DeviceSetting {
  enum class Kind { kAuto, kCpu, kCuda, kCard };
  Kind kind = Kind::kAuto;
  /// Of a CUDA device that was named by number (kCuda).
  std::optional<std::int64_t> index;
  /// The UUID or PCI address of a card (kCard), as it was written.
  std::string card;

  bool operator==(const DeviceSetting&) const = default;
};

enum class Strategy { kAuto, kReplicate, kShard, kHybrid };

struct DistributedSettings {
  Strategy strategy = Strategy::kAuto;
  /// Empty: "auto".
  std::optional<std::int64_t> shard_degree;
  std::optional<std::string> interface;
  std::int64_t watchdog_seconds = 600;
  bool verify = false;
};

enum class Resume { kAuto, kNever };

struct CheckpointSettings {
  /// Empty only before loading, which fills in runs/<the config file's stem>.
  std::string output_dir;
  std::optional<std::int64_t> save_every_steps;
  std::optional<std::int64_t> save_every_epochs = 1;
  std::optional<std::int64_t> keep_last = 3;
  Resume resume = Resume::kAuto;
  bool overwrite = false;
  bool save_merged = false;
};

struct MetricsSettings {
  std::int64_t log_every_steps = 1;
  bool tensorboard = false;
  std::vector<std::int64_t> profile_steps;
};

struct Settings {
  ModelSettings model;
  LoraSettings lora;
  DataSettings data;
  BatchSettings batch;
  TrainingSettings training;
  OptimizerSettings optimizer;
  SchedulerSettings lr_scheduler;
  PrecisionSettings precision;
  DeviceSetting device;
  DistributedSettings distributed;
  CheckpointSettings checkpoint;
  MetricsSettings metrics;
};

}  // namespace lorikeet::config
