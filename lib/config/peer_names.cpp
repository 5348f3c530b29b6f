#include "config/peer_names.h"

#include <algorithm>
#include <array>

#include "base/strings.h"

namespace lorikeet::config {
namespace {

constexpr std::string_view kFolder = "the checkpoint's folder, or hub:OWNER/NAME";
constexpr std::string_view kPass =
    "the most examples of one forward pass on a device; a step takes batch.global, whatever the passes";
constexpr std::string_view kStep = "the examples of a whole step: those of one pass x passes x devices there";
constexpr std::string_view kFile = "a file, a folder, a pattern or hub:OWNER/NAME";
constexpr std::string_view kPreset = "a preset of all number formats: bf16, fp16, fp32 or tf32";
constexpr std::string_view kCheckpointing = "none, mlp, full or auto";
constexpr std::string_view kValidation = "with data.validation.path or data.validation.fraction";
constexpr std::string_view kBetas = "both in one list, [0.9, 0.999]";
constexpr std::string_view kQuantised = "nf4 for 4 bits, fp8 for 8";
constexpr std::string_view kSaving = "or checkpoint.save_every_epochs";
constexpr std::string_view kStrategy = "auto, replicate, shard or hybrid";
constexpr std::string_view kNoAttention =
    "there is no choice: attention never crosses from one example to another";
constexpr std::string_view kNoTask = "there is no choice: a causal language model learns by LoRA";
constexpr std::string_view kNoTokenizer = "there is no choice: the tokenizer is the one in model.path";
constexpr std::string_view kNoTracker =
    "there is none: every step's numbers are in the run's metrics.jsonl, and TensorBoard's with "
    "metrics.tensorboard=true";
constexpr std::string_view kTracker = "true or false, TensorBoard is the one there is";
constexpr std::string_view kNoWorkers = "there are none: rows are tokenised once, before the first step";

constexpr auto kPeerNames = std::to_array<PeerName>({
    // The model.
    {"base_model", "model.path", kFolder},
    {"base_model_name_or_path", "model.path", kFolder},
    {"model_name_or_path", "model.path", kFolder},
    {"pretrained_model_name_or_path", "model.path", kFolder},
    {"model_name", "model.path", kFolder},
    {"model_id", "model.path", kFolder},
    {"model_path", "model.path", ""},
    {"model_dir", "model.path", ""},
    {"checkpoint_path", "model.path", ""},
    {"tokenizer_path", "", kNoTokenizer},
    {"tokenizer_name", "", kNoTokenizer},
    {"tokenizer_type", "", kNoTokenizer},
    {"attn_implementation", "", kNoAttention},
    {"flash_attention", "", kNoAttention},
    {"flash_attn", "", kNoAttention},
    // The adapter.
    {"r", "lora.rank", ""},
    {"lora_r", "lora.rank", ""},
    {"lora_rank", "lora.rank", ""},
    {"lora_alpha", "lora.alpha", ""},
    {"lora_dropout", "lora.dropout", ""},
    {"lora_target_modules", "lora.target_modules", ""},
    {"lora_target", "lora.target_modules", ""},
    {"lora_target_parameters", "lora.target_parameters", ""},
    {"lora_attn_modules", "lora.target_modules", "names such as q_proj, those of the MLP too"},
    {"lora_target_linear", "lora.target_modules", "true there is all-linear here"},
    {"rslora", "lora.use_rslora", ""},
    {"peft_use_rslora", "lora.use_rslora", ""},
    {"peft_use_dora", "lora.use_dora", ""},
    {"lora_plus_lr_ratio", "optimizer.loraplus_lr_ratio", ""},
    {"peft_layers_to_transform", "lora.layers_to_transform", ""},
    {"lora_layers_to_transform", "lora.layers_to_transform", ""},
    {"init_lora_weights", "lora.init", "true there is kaiming here"},
    {"lora_model_dir", "lora.init", ""},
    {"adapter_name_or_path", "lora.init", ""},
    {"peft_type", "", kNoTask},
    {"task_type", "", kNoTask},
    // The data.
    {"dataset", "data.train.path", kFile},
    {"datasets", "data.train.path", kFile},
    {"dataset_name", "data.train.path", kFile},
    {"dataset_path", "data.train.path", kFile},
    {"data_path", "data.train.path", kFile},
    {"data_files", "data.train.path", kFile},
    {"train_data", "data.train.path", kFile},
    {"train_dataset", "data.train.path", kFile},
    {"train_file", "data.train.path", kFile},
    {"dataset_format", "data.train.format", ""},
    {"dataset_type", "data.train.format", ""},
    {"column_map", "data.train.columns", ""},
    {"eval_dataset", "data.validation.path", kFile},
    {"eval_file", "data.validation.path", kFile},
    {"test_datasets", "data.validation.path", kFile},
    {"val_data", "data.validation.path", kFile},
    {"val_file", "data.validation.path", kFile},
    {"validation_file", "data.validation.path", kFile},
    {"val_set_size", "data.validation.fraction", ""},
    {"val_size", "data.validation.fraction", ""},
    {"test_size", "data.validation.fraction", ""},
    {"validation_split", "data.validation.fraction", ""},
    {"max_length", "data.max_seq_len", ""},
    {"max_seq_length", "data.max_seq_len", ""},
    {"max_sequence_length", "data.max_seq_len", ""},
    {"model_max_length", "data.max_seq_len", ""},
    {"sequence_len", "data.max_seq_len", ""},
    {"sequence_length", "data.max_seq_len", ""},
    {"seq_len", "data.max_seq_len", ""},
    {"seq_length", "data.max_seq_len", ""},
    {"block_size", "data.max_seq_len", ""},
    {"cutoff_len", "data.max_seq_len", ""},
    {"train_on_inputs", "data.train_on", "true there is all here"},
    {"train_on_input", "data.train_on", "true there is all here"},
    {"completion_only_loss", "data.train_on", "the opposite: true there is roles here, false is all"},
    {"assistant_only_loss", "data.train_on", "the opposite: true there is roles here, false is all"},
    {"mask_prompt", "data.train_on", "the opposite: true there is roles here, false is all"},
    {"sample_packing", "data.packing", ""},
    {"packed", "data.packing", ""},
    {"pack_sequences", "data.packing", ""},
    {"template", "data.chat_template", ""},
    {"prompt_template", "data.chat_template", ""},
    {"dataset_prepared_path", "data.cache_dir", ""},
    {"num_workers", "", kNoWorkers},
    {"dataloader_num_workers", "", kNoWorkers},
    {"dataset_num_proc", "", kNoWorkers},
    // The batch.
    {"batch_size", "batch.global", kStep},
    {"global_batch_size", "batch.global", ""},
    {"train_batch_size", "batch.global", ""},
    {"gradient_accumulation_steps", "batch.global", kStep},
    {"gradient_accumulation_iters", "batch.global", kStep},
    {"micro_batch_size", "batch.micro", kPass},
    {"per_device_train_batch_size", "batch.micro", kPass},
    {"per_device_eval_batch_size", "batch.micro", kPass},
    {"train_micro_batch_size_per_gpu", "batch.micro", kPass},
    {"eval_batch_size", "batch.micro", kPass},
    // The loop.
    {"num_train_epochs", "training.epochs", ""},
    {"num_epochs", "training.epochs", ""},
    {"max_epochs", "training.epochs", ""},
    {"n_epochs", "training.epochs", ""},
    {"max_train_steps", "training.max_steps", ""},
    {"num_steps", "training.max_steps", ""},
    {"total_steps", "training.max_steps", ""},
    {"max_iters", "training.max_steps", ""},
    {"max_steps_per_epoch", "training.max_steps", "of the whole run, not of an epoch"},
    {"random_seed", "training.seed", ""},
    {"data_seed", "training.seed", "one seed for everything"},
    {"max_grad_norm", "training.clip_grad_norm", ""},
    {"gradient_clipping", "training.clip_grad_norm", ""},
    {"gradient_clip_val", "training.clip_grad_norm", ""},
    {"grad_clip", "training.clip_grad_norm", ""},
    {"gradient_checkpointing", "training.activation_checkpointing", kCheckpointing},
    {"use_gradient_checkpointing", "training.activation_checkpointing", kCheckpointing},
    {"enable_activation_checkpointing", "training.activation_checkpointing", kCheckpointing},
    {"full_determinism", "training.deterministic", ""},
    // The optimizer and its schedule.
    {"learning_rate", "optimizer.lr", ""},
    {"optim", "optimizer.name", "always adamw"},
    {"optimizer_type", "optimizer.name", "always adamw"},
    {"adam_beta1", "optimizer.betas", kBetas},
    {"adam_beta2", "optimizer.betas", kBetas},
    {"adam_epsilon", "optimizer.eps", ""},
    {"epsilon", "optimizer.eps", ""},
    {"lr_scheduler_type", "lr_scheduler.name", "cosine, linear or constant"},
    {"lr_schedule", "lr_scheduler.name", "cosine, linear or constant"},
    {"scheduler", "lr_scheduler.name", "cosine, linear or constant"},
    {"num_warmup_steps", "lr_scheduler.warmup_steps", ""},
    {"lr_warmup_steps", "lr_scheduler.warmup_steps", ""},
    {"warmup", "lr_scheduler.warmup_steps", "or lr_scheduler.warmup_ratio, a part of all steps"},
    {"min_learning_rate", "lr_scheduler.min_lr", ""},
    {"min_lr_ratio", "lr_scheduler.min_lr", "a learning rate, not a part of optimizer.lr"},
    {"cosine_min_lr_ratio", "lr_scheduler.min_lr", "a learning rate, not a part of optimizer.lr"},
    // Number formats.
    {"bf16", "precision.preset", kPreset},
    {"fp16", "precision.preset", kPreset},
    {"tf32", "precision.preset", kPreset},
    {"dtype", "precision.preset", kPreset},
    {"torch_dtype", "precision.preset", kPreset},
    {"mixed_precision", "precision.preset", kPreset},
    {"load_in_4bit", "precision.base_storage", kQuantised},
    {"load_in_8bit", "precision.base_storage", kQuantised},
    {"quantize", "precision.base_storage", kQuantised},
    {"quantization_bit", "precision.base_storage", kQuantised},
    // Devices.
    {"device_map", "device", ""},
    {"deepspeed", "distributed.strategy", kStrategy},
    {"fsdp", "distributed.strategy", kStrategy},
    {"fsdp_config", "distributed.strategy", kStrategy},
    // What is written.
    {"out_dir", "checkpoint.output_dir", ""},
    {"output", "checkpoint.output_dir", ""},
    {"save_dir", "checkpoint.output_dir", ""},
    {"overwrite_output_dir", "checkpoint.overwrite", ""},
    {"resume_from_checkpoint", "checkpoint.resume", "auto goes on with the run in checkpoint.output_dir"},
    {"auto_resume_from_checkpoints", "checkpoint.resume",
     "auto goes on with the run in checkpoint.output_dir"},
    {"save_steps", "checkpoint.save_every_steps", ""},
    {"save_interval", "checkpoint.save_every_steps", ""},
    {"checkpointing_steps", "checkpoint.save_every_steps", ""},
    {"save_strategy", "checkpoint.save_every_steps", kSaving},
    {"save_total_limit", "checkpoint.keep_last", ""},
    {"eval_steps", "data.validation.every_steps", kValidation},
    {"eval_interval", "data.validation.every_steps", kValidation},
    {"eval_strategy", "data.validation.every_steps", kValidation},
    {"evaluation_strategy", "data.validation.every_steps", kValidation},
    {"run_val_every_n_steps", "data.validation.every_steps", kValidation},
    {"load_best_model_at_end", "data.validation.keep_best", kValidation},
    {"early_stopping_patience", "data.validation.patience", kValidation},
    {"logging_steps", "metrics.log_every_steps", ""},
    {"log_interval", "metrics.log_every_steps", ""},
    {"log_every_n_steps", "metrics.log_every_steps", ""},
    {"report_to", "metrics.tensorboard", kTracker},
    {"metric_logger", "metrics.tensorboard", kTracker},
    {"logger_name", "metrics.tensorboard", kTracker},
    {"use_tensorboard", "metrics.tensorboard", ""},
    {"wandb_project", "", kNoTracker},
});

}  // namespace

std::span<const PeerName> peer_names() { return kPeerNames; }

std::optional<std::string> peer_hint(std::string_view name) {
  std::string leaf = ascii_lower(name.substr(name.rfind('.') + 1));
  std::replace(leaf.begin(), leaf.end(), '-', '_');
  const auto* const peer = std::find_if(kPeerNames.begin(), kPeerNames.end(),
                                        [&](const PeerName& known) { return known.theirs == leaf; });
  if (peer == kPeerNames.end()) return std::nullopt;
  if (peer->ours.empty()) return " (" + std::string(peer->note) + ")";
  return " (here it is '" + std::string(peer->ours) + "'" +
         (peer->note.empty() ? "" : ": " + std::string(peer->note)) + ")";
}

}  // namespace lorikeet::config
