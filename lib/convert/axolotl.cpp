#include <algorithm>
#include <array>
#include <cmath>
#include <string_view>

#include "base/error.h"
#include "base/strings.h"
#include "config/yaml.h"
#include "convert/converters.h"

// The keys and their defaults are those of axolotl's src/axolotl/utils/schemas and core/builders as of July
// 2026.
namespace lorikeet::convert {
namespace {

// Training of another kind, by what its configs have and others don't.
void require_lora_on_text(ForeignConfig& in) {
  const auto refuse = [&](const std::string& what) {
    throw Error("[convert] this axolotl config is for " + what +
                ", expected LoRA on text; that can't be done here");
  };
  if (const auto kind = in.text("rl")) refuse("preferences or rewards (rl: " + escape_control(*kind) + ")");
  if (in.has("processor_type") || in.boolean("is_multimodal", false)) refuse("multimodal models");
  if (in.has("qat")) refuse("quantisation-aware training");
  if (in.has("pretraining_dataset")) refuse("pretraining");
  const std::string adapter = in.text("adapter").value_or("");
  if (adapter.empty()) refuse("training of all weights (adapter isn't set)");
  if (adapter != "lora" && adapter != "qlora") refuse("the adapter " + escape_control(adapter));
}

void convert_base(ForeignConfig& in, OwnConfig& out) {
  const std::string path = in.text("base_model").value_or("");
  const std::string revision = in.text("revision_of_model").value_or("");
  out.set_text("model.path", is_local_for_axolotl(path) ? path : hub_name(path, revision));
  const bool in_4bit = in.boolean("load_in_4bit", false), in_8bit = in.boolean("load_in_8bit", false);
  if (in_4bit) {
    out.set("precision.base_storage", "nf4", "load_in_4bit is true");
    if (!in.boolean("bnb_config_kwargs.bnb_4bit_use_double_quant", true))
      note_plain_scales(out, "bnb_4bit_use_double_quant: false");
  } else if (in_8bit) {
    out.note(
        "the base is held in 8 bits in axolotl (load_in_8bit), in 16 here, with twice the memory for it");
  }
  if (in.boolean("gptq", false)) in.problem("gptq", "is true: such a base can't be read here");
  for (const char* key : {"model_type", "tokenizer_type", "base_model_config", "tokenizer_config",
                          "is_llama_derived_model", "is_mistral_derived_model", "is_falcon_derived_model"})
    in.pass_over(key, "config.json and the tokenizer's files say it");
  for (const char* key :
       {"trust_remote_code", "tokenizer_use_fast", "tokenizer_legacy", "strict", "low_cpu_mem_usage"})
    in.pass_over(key, "there is no choice");
  in.pass_over("special_tokens.pad_token", "rows are never padded");
  for (const char* key : {"special_tokens.bos_token", "special_tokens.eos_token", "special_tokens.unk_token"})
    if (in.has(key))
      in.problem(key, "can't be changed here, the tokenizer's files say it: take it out if it is theirs");
  if (const auto tokens = in.list("tokens"); !tokens.empty()) out.set_list("model.add_tokens", tokens);
}

// What lora_target_linear trains beside all linear modules but the head: modules that are named too.
void require_linear_targets(ForeignConfig& in) {
  const config::YamlNode* modules = in.find("lora_target_modules");
  if (modules == nullptr) return;
  const bool one = modules->is_scalar();
  const std::vector<std::string> names =
      one ? std::vector<std::string>{modules->text} : in.list("lora_target_modules");
  for (const std::string& name : names) {
    if (!one && name.ends_with("_proj")) continue;
    in.problem(
        "lora_target_modules",
        "names '" + escape_control(name) +
            "' beside lora_target_linear, and axolotl trains both; take it out if it is a linear module "
            "other than the head, else list all modules without lora_target_linear");
  }
  in.pass_over("lora_target_modules", "all of them are linear modules, see lora_target_linear");
}

void convert_targets(ForeignConfig& in, OwnConfig& out) {
  const config::YamlNode* modules = in.find("lora_target_modules");
  const std::vector<std::string> parameters = in.list("lora_target_parameters");
  if (in.boolean("lora_target_linear", false)) {
    out.set("lora.target_modules", "all-linear");
    require_linear_targets(in);
  } else if (modules != nullptr && modules->is_scalar()) {
    out.set_text("lora.target_modules", in.text("lora_target_modules").value_or(""));
  } else if (const auto names = in.list("lora_target_modules"); !names.empty()) {
    out.set_list("lora.target_modules", names);
  } else if (!parameters.empty()) {
    out.set("lora.target_modules", "[]");
  } else {
    in.problem("lora_target_modules", "is missing: expected it, or lora_target_linear: true");
  }
  if (!parameters.empty()) out.set_list("lora.target_parameters", parameters);
  if (const auto tables = in.list("lora_modules_to_save"); !tables.empty())
    out.set_list("lora.modules_to_save", tables);
  if (const auto layers = in.number_list("peft_layers_to_transform"))
    out.set("lora.layers_to_transform", *layers);
}

void convert_adapter(ForeignConfig& in, OwnConfig& out) {
  for (const char* key : {"lora_r", "lora_alpha"})
    if (!in.has(key)) in.problem(key, "is missing");
  out.set("lora.rank", in.number_text("lora_r", "null"));
  out.set("lora.alpha", in.number_text("lora_alpha", "null"));
  out.set("lora.dropout", in.number_text("lora_dropout", "0"));
  convert_targets(in, out);
  if (in.boolean("peft_use_dora", false)) out.set_boolean("lora.use_dora", true);
  if (in.boolean("peft_use_rslora", false)) out.set_boolean("lora.use_rslora", true);
  out.set_boolean("lora.ensure_weight_tying", in.boolean("peft_ensure_weight_tying", false));
  if (in.has("loraplus_lr_ratio"))
    out.set("optimizer.loraplus_lr_ratio", in.number_text("loraplus_lr_ratio", "null"));
  if (const auto folder = in.text("lora_model_dir")) out.set_text("lora.init", *folder);
  if (const auto init = in.text("peft_init_lora_weights"); init && ascii_lower(*init) != "true")
    in.problem("peft_init_lora_weights", "is '" + escape_control(*init) + "', expected true; see lora.init");
  for (const char* key : {"lora_fan_in_fan_out", "lora_on_cpu", "lora_mlp_kernel", "lora_qkv_kernel",
                          "lora_o_kernel", "qlora_sharded_model_loading", "merge_method"})
    in.pass_over(key, "changes no number");
}

void convert_optimizer(ForeignConfig& in, OwnConfig& out) {
  const std::string name = in.text("optimizer").value_or("adamw_torch_fused");
  const bool narrow = name == "adamw_bnb_8bit" || name == "adamw_8bit" || name == "paged_adamw_8bit" ||
                      name == "adamw_torch_8bit" || name == "adamw_torch_4bit";
  if (narrow)
    out.note("the optimizer's moments are held in 8 or 4 bits in axolotl (" + name + "), in fp32 here");
  if (!narrow && name != "adamw_torch" && name != "adamw_torch_fused" && name != "adamw_hf" &&
      name != "paged_adamw_32bit")
    in.problem("optimizer",
               "is '" + escape_control(name) + "', expected one of the AdamW, the only kind here");
  if (!in.has("learning_rate")) in.problem("learning_rate", "is missing");
  out.set("optimizer.lr", in.number_text("learning_rate", "null"));
  out.set("optimizer.weight_decay", in.number_text("weight_decay", "0"));
  if (in.has("adam_beta1") || in.has("adam_beta2"))
    out.set("optimizer.betas",
            "[" + in.number_text("adam_beta1", "0.9") + ", " + in.number_text("adam_beta2", "0.999") + "]");
  if (in.has("adam_epsilon")) out.set("optimizer.eps", in.number_text("adam_epsilon", "null"));
  out.set("training.clip_grad_norm", in.number_text("max_grad_norm", "1.0"));

  const std::string shape = in.text("lr_scheduler").value_or("cosine");
  if (shape != "cosine" && shape != "linear" && shape != "constant" && shape != "constant_with_warmup")
    in.problem("lr_scheduler", "is '" + escape_control(shape) +
                                   "', expected cosine, linear, constant or constant_with_warmup");
  out.set("lr_scheduler.name", shape == "constant_with_warmup" ? "constant" : shape);
  if (shape == "constant") {  // transformers gives it no warm-up, whatever the config says
    out.set("lr_scheduler.warmup_ratio", "null");
    in.pass_over("warmup_ratio", "a constant rate has none there");
    in.pass_over("warmup_steps", "a constant rate has none there");
  } else if (const auto steps = in.integer("warmup_steps")) {
    out.set("lr_scheduler.warmup_ratio", "null");
    out.set("lr_scheduler.warmup_steps", *steps == 1 ? "2" : std::to_string(*steps),
            *steps == 1 ? "axolotl makes 2 of 1" : "");
    in.pass_over("warmup_ratio", "warmup_steps comes first");
  } else {
    const bool given = in.has("warmup_ratio");
    out.set("lr_scheduler.warmup_ratio", in.number_text("warmup_ratio", "0.03"));
    if (in.number("warmup_ratio").value_or(0.03) != 0)
      out.note(
          std::string("the steps of the warm-up are a part of all steps that axolotl rounds down (and makes "
                      "2 of 1") +
          (given ? "" : ", and 100 of more") +
          "), and that is rounded up here: give lr_scheduler.warmup_steps for the same");
  }
}

// A number that is at least 1, without its fraction, else 0.
std::int64_t whole_part(double number) {
  constexpr double kMost = 1e9;
  return number >= 1 ? static_cast<std::int64_t>(std::min(number, kMost)) : 0;
}

void convert_training(ForeignConfig& in, OwnConfig& out) {
  const double epochs = in.number("num_epochs").value_or(1);
  if (epochs < 1 || epochs != std::floor(epochs))
    in.problem("num_epochs", "isn't a whole number; see training.max_steps");
  out.set_integer("training.epochs", whole_part(epochs));
  // transformers goes through as many epochs as max_steps takes, too.
  if (const auto steps = in.count("max_steps")) out.set_integer("training.max_steps", *steps);
  out.set_integer("training.seed", in.integer("seed").value_or(42));
  const std::string checkpointing = ascii_lower(in.text("gradient_checkpointing").value_or("false"));
  if (checkpointing != "true" && checkpointing != "false" && !checkpointing.starts_with("offload"))
    in.problem("gradient_checkpointing",
               "is '" + escape_control(checkpointing) + "', expected true or false");
  out.set("training.activation_checkpointing", checkpointing == "false" ? "none" : "full");
  const std::string offloading = ascii_lower(in.text("activation_offloading").value_or("false"));
  if (offloading != "false" || checkpointing.starts_with("offload"))
    out.set("training.offload", "activations");
  in.pass_over("gradient_checkpointing_kwargs", "changes no number");
  const std::string bf16 = ascii_lower(in.text("bf16").value_or("auto"));
  const bool fp16 = in.boolean("fp16", false), tf32 = in.boolean("tf32", false);
  // auto gives way to an fp16 that is asked for.
  const bool in_bf16 = bf16 != "false" && !(bf16 == "auto" && fp16);
  out.set("precision.preset", in_bf16 ? "bf16" : fp16 ? "fp16" : tf32 ? "tf32" : "fp32");
  for (const char* key : {"torch_dtype", "float16", "bfloat16"}) in.pass_over(key, "see precision.preset");
  out.note(
      "the loss of a step is the mean over all its label tokens here; what axolotl's is depends on the "
      "version of "
      "transformers");
}

// axolotl loads the best checkpoint at the end unless the config says no, but only where every checkpoint
// follows a validation.
void convert_best(ForeignConfig& in, OwnConfig& out, std::int64_t epochs) {
  const auto patience = in.count("early_stopping_patience");
  const bool wanted = in.boolean("load_best_model_at_end", true) || patience;
  if (in.number("val_set_size").value_or(0) <= 0) {
    in.pass_over("early_stopping_patience", "nothing is validated: val_set_size is 0");
    return;
  }
  if (patience) out.set_integer("data.validation.patience", *patience);
  // Numbers an epoch become steps where they are more than one in the whole run. Parts of the run as steps
  // (0.05) aren't converted.
  const auto positive = [&](const char* key) { return whole_part(in.number(key).value_or(0)); };
  const auto several = [&](const char* key) {
    const std::int64_t number = positive(key);
    return number * epochs > 1 ? number : 0;
  };
  const auto divides = [](std::int64_t part, std::int64_t whole) {
    return part > 0 && whole > 0 && whole % part == 0;
  };
  const bool after_each = divides(positive("eval_steps"), positive("save_steps")) ||
                          divides(several("saves_per_epoch"), several("evals_per_epoch"));
  out.set_boolean("data.validation.keep_best", wanted && after_each);
}

void convert_output(ForeignConfig& in, OwnConfig& out) {
  if (const auto folder = in.text("output_dir")) out.set_text("checkpoint.output_dir", *folder);
  if (const auto steps = in.integer("save_steps"); steps.value_or(0) > 0)
    out.set_integer("checkpoint.save_every_steps", *steps);
  if (const auto most = in.count("save_total_limit")) out.set_integer("checkpoint.keep_last", *most);
  if (const auto steps = in.count("logging_steps")) out.set_integer("metrics.log_every_steps", *steps);
  if (in.boolean("use_tensorboard", false)) out.set_boolean("metrics.tensorboard", true);
  convert_best(in, out, whole_part(in.number("num_epochs").value_or(1)));
  in.pass_over("group_by_length",
               "the order of rows stays shuffled; within a step they are grouped by their lengths");
  in.pass_over("saves_per_epoch",
               "a checkpoint at the end of each epoch, or see checkpoint.save_every_steps");
  for (const char* key : {"resume_from_checkpoint", "auto_resume_from_checkpoints"})
    in.pass_over(key, "a run goes on by itself with its own checkpoints, not with axolotl's");
  static constexpr std::array<std::string_view, 26> kElsewhere{"wandb_project",
                                                               "wandb_entity",
                                                               "wandb_watch",
                                                               "wandb_name",
                                                               "wandb_run_id",
                                                               "wandb_log_model",
                                                               "use_wandb",
                                                               "wandb_mode",
                                                               "mlflow_tracking_uri",
                                                               "mlflow_experiment_name",
                                                               "hub_model_id",
                                                               "hub_strategy",
                                                               "push_dataset_to_hub",
                                                               "hf_use_auth_token",
                                                               "save_safetensors",
                                                               "save_strategy",
                                                               "debug",
                                                               "local_rank",
                                                               "use_comet",
                                                               "comet_project_name",
                                                               "include_tokens_per_second",
                                                               "loss_watchdog_threshold",
                                                               "loss_watchdog_patience",
                                                               "eval_table_size",
                                                               "eval_max_new_tokens",
                                                               "eval_causal_lm_metrics"};
  for (const std::string_view key : kElsewhere)
    in.pass_over(key, "not needed: metrics.jsonl and the adapter are in checkpoint.output_dir");
  for (const std::string& plugin : in.list("plugins")) {
    const std::string name = last_part(plugin);
    if (name != "LigerPlugin" && name != "CutCrossEntropyPlugin")
      in.problem("plugins", "names '" + escape_control(plugin) +
                                "', which may change what is trained, expected none but LigerPlugin and "
                                "CutCrossEntropyPlugin; take it out if it changes nothing");
  }
  static constexpr std::array<std::string_view, 31> kMachinery{"flash_attention",
                                                               "attn_implementation",
                                                               "xformers_attention",
                                                               "sdp_attention",
                                                               "s2_attention",
                                                               "eager_attention",
                                                               "flex_attention",
                                                               "torch_compile",
                                                               "torch_compile_mode",
                                                               "torch_compile_backend",
                                                               "plugins",
                                                               "liger_rope",
                                                               "liger_rms_norm",
                                                               "liger_glu_activation",
                                                               "liger_swiglu",
                                                               "liger_layer_norm",
                                                               "liger_fused_linear_cross_entropy",
                                                               "cut_cross_entropy",
                                                               "deepspeed",
                                                               "fsdp",
                                                               "fsdp_config",
                                                               "fsdp_version",
                                                               "ddp_find_unused_parameters",
                                                               "use_kernels",
                                                               "liger_rms_norm_gated",
                                                               "fused_attn_kernel",
                                                               "experts_implementation",
                                                               "flex_attn_compile_kwargs",
                                                               "gemma4_hybrid_attn_impl",
                                                               "dataloader_num_workers"};
  for (const std::string_view key : kMachinery)
    in.pass_over(key, "how it is computed; `lorikeet plan` says how to spread a run over devices");
}

}  // namespace

bool is_axolotl(ForeignConfig& in) {
  return in.has("base_model") && (in.has("datasets") || in.has("adapter"));
}

void convert_axolotl(ForeignConfig& in, OwnConfig& out, const ConvertOptions& options) {
  require_lora_on_text(in);
  convert_base(in, out);
  convert_adapter(in, out);
  convert_axolotl_data(in, out, options);
  convert_training(in, out);
  convert_optimizer(in, out);
  convert_output(in, out);
}

}  // namespace lorikeet::convert
