#include <algorithm>
#include <filesystem>

#include "base/error.h"
#include "base/strings.h"
#include "convert/converters.h"

// The keys are those of torchtune's recipes lora_finetune_single_device and lora_finetune_distributed
// (0.6.1's, and those of validation, which came later), the defaults those of its builders and recipes.
namespace lorikeet::convert {
namespace {

// Recipes that train something else than LoRA on text, by what their configs have and others don't.
void require_plain_lora(ForeignConfig& in) {
  const auto refuse = [&](const std::string& kind) {
    throw Error("[convert] this is a torchtune recipe for " + kind + ", expected one for LoRA on text; " +
                kind + " can't be done here");
  };
  const std::string model = in.text("model._component_").value_or("");
  const std::string loss = in.text("loss._component_").value_or("");
  if (model.find("vision") != std::string::npos || model.find(".clip.") != std::string::npos)
    refuse("vision models");
  if (in.has("teacher_model") || in.has("kd_ratio") || loss.find("KL") != std::string::npos)
    refuse("knowledge distillation (KD)");
  if (loss.find("rlhf") != std::string::npos || loss.find("DPO") != std::string::npos)
    refuse("preference optimisation (DPO)");
  if (in.has("quantizer")) refuse("quantisation-aware training (QAT)");
  const std::string builder = last_part(model);
  if (!builder.starts_with("lora_") && !builder.starts_with("qlora_"))
    in.problem("model._component_",
               "is '" + escape_control(model) + "', expected a LoRA builder (lora_..., qlora_...)");
}

void convert_model(ForeignConfig& in, OwnConfig& out) {
  std::filesystem::path folder = in.text("checkpointer.checkpoint_dir").value_or("");
  if (!folder.has_filename()) folder = folder.parent_path();
  const std::string kind = last_part(in.text("checkpointer._component_").value_or(""));
  if (kind == "FullModelMetaCheckpointer") {
    if (folder.filename() == "original") folder = folder.parent_path();
    out.set_text("model.path", folder.string(),
                 "the folder with config.json and safetensors, not Meta's original/");
  } else if (kind == "FullModelHFCheckpointer") {
    out.set_text("model.path", folder.string(), "or hub:OWNER/NAME");
  } else {
    in.problem(
        "checkpointer._component_",
        "is '" + escape_control(kind) + "': its files can't be read here; expected FullModelHFCheckpointer");
  }
  if (folder.empty()) in.problem("checkpointer.checkpoint_dir", "is missing: expected the model's folder");
  in.pass_over("checkpointer.checkpoint_files", "all safetensors of the folder are read");
  in.pass_over("checkpointer.model_type", "config.json says it");
  in.pass_over("checkpointer.output_dir", "see checkpoint.output_dir");
  for (const char* key : {"checkpointer.recipe_checkpoint", "checkpointer.adapter_checkpoint"}) {
    if (in.has(key)) in.problem(key, "can't be continued here: torchtune's checkpoints hold pickles");
  }
  if (in.boolean("resume_from_checkpoint", false))
    in.problem("resume_from_checkpoint", "is true: a run of torchtune's can't be continued here");
  if (in.boolean("should_load_recipe_state", false))
    in.problem("should_load_recipe_state", "is true: a run of torchtune's can't be continued here");
}

// torchtune's names of modules as the checkpoint has them.
std::vector<std::string> target_modules(ForeignConfig& in, bool fused, OwnConfig& out) {
  std::vector<std::string> modules;
  const auto add = [&](const std::string& name) {
    if (std::find(modules.begin(), modules.end(), name) == modules.end()) modules.push_back(name);
  };
  for (const std::string& name : in.list("model.lora_attn_modules")) {
    const bool qkv = name == "q_proj" || name == "k_proj" || name == "v_proj";
    if (!qkv && name != "output_proj")
      in.problem("model.lora_attn_modules",
                 "names '" + escape_control(name) + "', expected q_proj, k_proj, v_proj or output_proj");
    add(name == "output_proj" ? "o_proj" : qkv && fused ? "qkv_proj" : name);
  }
  if (in.boolean("model.apply_lora_to_mlp", false)) {
    for (const char* name : {"gate_proj", "up_proj"}) add(fused ? "gate_up_proj" : name);
    add("down_proj");
  }
  if (in.boolean("model.apply_lora_to_output", false)) add("lm_head");
  if (modules.empty()) in.problem("model.lora_attn_modules", "is empty: nothing would be trained");
  if (fused)
    out.note(
        "the checkpoint holds q, k and v, and gate and up, as one module each, and so does the adapter: one "
        "A for "
        "the three (k_proj too), where torchtune splits the modules and trains an A each");
  return modules;
}

void convert_lora(ForeignConfig& in, OwnConfig& out) {
  const std::string model = in.text("model._component_").value_or("");
  const bool fused = model.find(".phi3.") != std::string::npos || model.find(".phi4.") != std::string::npos;
  out.set("lora.rank", in.number_text("model.lora_rank", "8"));
  out.set("lora.alpha", in.number_text("model.lora_alpha", "16"));
  out.set("lora.dropout", in.number_text("model.lora_dropout", "0.0"));
  out.set_list("lora.target_modules", target_modules(in, fused, out));
  if (in.boolean("model.use_dora", false)) out.set_boolean("lora.use_dora", true);
  if (last_part(model).starts_with("qlora_") || in.boolean("model.quantize_base", false))
    out.set("precision.base_storage", "nf4", "its builder is '" + escape_control(last_part(model)) + "'");
}

void convert_training(ForeignConfig& in, OwnConfig& out) {
  const std::int64_t epochs = in.count("epochs").value_or(1);
  out.set_integer("training.epochs", epochs);
  if (const auto steps = in.count("max_steps_per_epoch")) {
    if (epochs == 1) {
      set_step_limit(out, "max_steps_per_epoch", "the epoch", *steps);
    } else {
      in.problem("max_steps_per_epoch",
                 "with more than one epoch starts each of them anew with other rows left out; "
                 "training.max_steps counts those of the whole run; take it out if no epoch has more steps");
    }
  }
  out.note(
      "torchtune leaves out the last rows of an epoch that don't fill a batch_size on all devices, and "
      "carries the batches of an unfinished step into the next epoch (those of the last epoch are lost); "
      "here the rows that are left make the epoch's last step, a smaller one");
  if (const auto seed = in.integer("seed")) {
    out.set_integer("training.seed", *seed);
  } else {
    out.set("training.seed", "42", "null there: each run had its own");
  }
  // Infinity has torchtune measure the norm and cut nothing; here it is measured always.
  const std::string most = ascii_lower(in.text("clip_grad_norm").value_or("null"));
  out.set("training.clip_grad_norm",
          most == "inf" || most == ".inf" ? "null" : in.number_text("clip_grad_norm", "null"));
  out.set("training.activation_checkpointing",
          in.boolean("enable_activation_checkpointing", false) ? "full" : "none");
  if (in.boolean("enable_activation_offloading", false)) out.set("training.offload", "activations");
  in.pass_over("activation_offloading_use_streams", "copies run beside the computation");
  in.pass_over("compile", "nothing is compiled at run time");
  in.pass_over("loss", "the same cross entropy, over all label tokens of a step");
}

void convert_optimizer(ForeignConfig& in, OwnConfig& out) {
  const std::string name = in.text("optimizer._component_").value_or("");
  if (name != "torch.optim.AdamW")
    in.problem("optimizer._component_",
               "is '" + escape_control(name) + "', expected torch.optim.AdamW, the only one here");
  out.set("optimizer.lr", in.number_text("optimizer.lr", "1e-3"));
  out.set("optimizer.weight_decay", in.number_text("optimizer.weight_decay", "0.01"));
  if (const auto betas = in.number_list("optimizer.betas")) out.set("optimizer.betas", *betas);
  if (in.has("optimizer.eps")) out.set("optimizer.eps", in.number_text("optimizer.eps", "null"));
  in.pass_over("optimizer.fused", "it always is");
  in.pass_over("optimizer.foreach", "one flat buffer");
  if (in.boolean("optimizer_in_bwd", false))
    in.problem("optimizer_in_bwd", "is true: gradients of a step are needed whole here");

  if (!in.has("lr_scheduler")) {
    out.set("lr_scheduler.name", "constant");
    out.set("lr_scheduler.warmup_ratio", "null");
    return;
  }
  const std::string scheduler = last_part(in.text("lr_scheduler._component_").value_or(""));
  if (scheduler != "get_cosine_schedule_with_warmup")
    in.problem("lr_scheduler._component_",
               "is '" + escape_control(scheduler) + "', expected get_cosine_schedule_with_warmup");
  if (in.number("lr_scheduler.num_cycles").value_or(0.5) != 0.5)
    in.problem("lr_scheduler.num_cycles", "isn't 0.5: expected half a cosine");
  out.set("lr_scheduler.name", "cosine");
  out.set("lr_scheduler.warmup_ratio", "null");
  out.set_integer("lr_scheduler.warmup_steps", in.integer("lr_scheduler.num_warmup_steps").value_or(0));
}

void convert_precision_and_device(ForeignConfig& in, OwnConfig& out) {
  const std::string dtype = in.text("dtype").value_or("fp32");
  if (dtype != "bf16" && dtype != "fp32")
    in.problem("dtype", "is '" + escape_control(dtype) + "', expected bf16 or fp32");
  out.set("precision.preset", dtype);
  if (dtype == "bf16")
    out.note(
        "adapters and their gradients are bf16 in torchtune, fp32 here (precision.adapter: bf16 is theirs)");
  const std::string device = in.text("device").value_or("cuda");
  out.set("device", device == "cpu" ? "cpu" : "auto");
  for (const char* key : {"fsdp", "fsdp_cpu_offload", "custom_sharded_layers", "fsdp_reshard_after_forward"})
    in.pass_over(key, "`lorikeet plan` says how to spread a run over devices");
  in.pass_over("low_cpu_ram", "weights are read piece by piece");
}

void convert_output(ForeignConfig& in, OwnConfig& out) {
  if (const auto folder = in.text("output_dir")) out.set_text("checkpoint.output_dir", *folder);
  out.set_boolean("checkpoint.save_merged", !in.boolean("save_adapter_weights_only", false));
  out.set_integer("metrics.log_every_steps", in.count("log_every_n_steps").value_or(1));
  if (last_part(in.text("metric_logger._component_").value_or("")) == "TensorBoardLogger")
    out.set_boolean("metrics.tensorboard", true);
  in.pass_over("metric_logger", "metrics.jsonl and TensorBoard's event files are in checkpoint.output_dir");
  in.pass_over("log_peak_memory_stats", "metrics.jsonl always has memory_peak_bytes");
  in.pass_over("log_level", "there is one");
  in.pass_over("profiler", "metrics.profile_steps traces steps");
}

}  // namespace

bool is_torchtune(ForeignConfig& in) {
  return in.has("model._component_") || in.has("checkpointer._component_");
}

void convert_torchtune(ForeignConfig& in, OwnConfig& out, const ConvertOptions& options) {
  require_plain_lora(in);
  convert_model(in, out);
  convert_lora(in, out);
  convert_torchtune_data(in, out, options);
  convert_training(in, out);
  convert_optimizer(in, out);
  convert_precision_and_device(in, out);
  convert_output(in, out);
}

}  // namespace lorikeet::convert
