#include <cmath>
#include <filesystem>

#include "base/strings.h"
#include "convert/converters.h"

// The keys are the arguments of litgpt 0.5.9's finetune/lora.py, the defaults those of its `setup`.
namespace lorikeet::convert {
namespace {

void convert_lora(ForeignConfig& in, OwnConfig& out) {
  out.set("lora.rank", in.text("lora_r").value_or("8"));
  out.set("lora.alpha", in.text("lora_alpha").value_or("16"));
  out.set("lora.dropout", in.text("lora_dropout").value_or("0.05"));
  std::vector<std::string> modules;
  const auto add = [&](const char* key, bool fallback, const std::vector<std::string>& names) {
    if (in.boolean(key, fallback)) modules.insert(modules.end(), names.begin(), names.end());
  };
  add("lora_query", true, {"q_proj"});
  add("lora_key", false, {"k_proj"});
  add("lora_value", true, {"v_proj"});
  add("lora_projection", false, {"o_proj"});
  add("lora_mlp", false, {"gate_proj", "up_proj", "down_proj"});
  add("lora_head", false, {"lm_head"});
  out.set("lora.target_modules", "[" + join(modules, ", ") + "]", "names of Llama-shaped checkpoints");
  if (const auto quantize = in.text("quantize"))
    out.set("precision.base_storage", "nf4", "quantize is '" + escape_control(*quantize) + "'");
  const std::string quantize = in.text("quantize").value_or("bnb.nf4");
  if (quantize != "bnb.nf4")
    in.problem("quantize", "is '" + escape_control(quantize) + "', expected null or bnb.nf4");
}

void convert_data(ForeignConfig& in, OwnConfig& out) {
  const std::string name = last_part(in.text("data.class_path").value_or("Alpaca"));
  const auto file = in.text("data.init_args.json_path");
  if (name == "JSON" && file) {
    out.set_text("data.train.path", *file);
  } else if (name == "Alpaca2k") {
    out.set_text("data.train.path", "hub:mhenrichsen/alpaca_2k_test");
  } else {
    in.problem("data.class_path",
               "is '" + escape_control(name) +
                   "', expected litgpt.data.JSON with json_path, or litgpt.data.Alpaca2k; litgpt "
                   "downloads that set from elsewhere than the Hub: give its file as JSON");
  }
  out.set("data.train.format", "alpaca");
  if (const auto style = in.text("data.init_args.prompt_style"); style && *style != "alpaca")
    in.problem("data.init_args.prompt_style", "is '" + escape_control(*style) + "', expected alpaca");
  out.set("data.chat_template", "alpaca");
  const std::string fraction =
      in.text("data.init_args.val_split_fraction").value_or(name == "JSON" ? "0" : "0.05");
  out.set("data.validation.fraction", fraction, "other rows than litgpt's");
  if (fraction != "0") out.set_boolean("data.validation.keep_best", false);  // the last is litgpt's
  out.set("data.train_on", in.boolean("data.init_args.mask_prompt", false) ? "roles" : "all");
  if (const auto length = in.integer("train.max_seq_length")) {
    out.set_integer("data.max_seq_len", *length);
  } else {
    out.set("data.max_seq_len", "8192", "null there: cut at the model's own length");
    out.set("data.overlong", "error");
  }
  for (const char* key :
       {"data.init_args.num_workers", "data.init_args.download_dir", "data.init_args.seed",
        "data.init_args.ignore_index", "data.init_args.file_url", "data.init_args.file_name"})
    in.pass_over(key, "not needed");
}

void convert_training(ForeignConfig& in, OwnConfig& out) {
  out.set_integer("batch.global", in.integer("train.global_batch_size").value_or(16));
  in.pass_over("train.micro_batch_size", "chosen by memory; it changes no number here");
  out.note(
      "litgpt averages the loss of each micro-batch and then these means; here a step's loss is the mean "
      "over all "
      "its label tokens");
  out.set_integer("training.epochs", in.integer("train.epochs").value_or(5));
  if (const auto steps = in.integer("train.max_steps")) out.set_integer("training.max_steps", *steps);
  if (in.has("train.max_tokens"))
    in.problem("train.max_tokens", "isn't read by finetune_lora either; take it out");
  if (in.boolean("train.tie_embeddings", false))
    in.problem("train.tie_embeddings", "can't be chosen: config.json says it");
  out.set_integer("training.seed", in.integer("seed").value_or(1337));
  out.set("training.clip_grad_norm", in.text("train.max_norm").value_or("null"));
  out.set("lr_scheduler.name", "cosine");
  out.set("lr_scheduler.warmup_ratio", "null");
  out.set_integer("lr_scheduler.warmup_steps", in.integer("train.lr_warmup_steps").value_or(100));
  if (in.has("train.lr_warmup_fraction"))
    in.problem("train.lr_warmup_fraction", "is a part of an epoch there; give train.lr_warmup_steps");
  in.pass_over("train.min_lr", "finetune_lora doesn't read it: its cosine ends at 0");
  if (const auto every = in.integer("train.save_interval"))
    out.set_integer("checkpoint.save_every_steps", *every);
  out.set("metrics.log_every_steps", "1");
  in.pass_over("train.log_interval", "counts micro-batches there, steps here");
  if (const auto every = in.integer("eval.interval")) out.set_integer("data.validation.every_steps", *every);
  in.pass_over("eval", "validation is over all held-out rows; answers come from `lorikeet generate`");
}

void convert_optimizer(ForeignConfig& in, OwnConfig& out) {
  const config::YamlNode* node = in.find("optimizer");
  const bool named = node == nullptr || node->is_scalar();
  const std::string name = last_part(in.text(named ? "optimizer" : "optimizer.class_path").value_or("AdamW"));
  if (name != "AdamW")
    in.problem("optimizer", "is '" + escape_control(name) + "', expected AdamW, the only one here");
  const auto argument = [&](const std::string& key, const std::string& fallback) {
    return named ? fallback : in.text("optimizer.init_args." + key).value_or(fallback);
  };
  out.set("optimizer.lr", argument("lr", "1e-3"));
  out.set("optimizer.weight_decay", argument("weight_decay", "0.01"));
  if (named) return;
  if (const auto betas = in.list("optimizer.init_args.betas"); !betas.empty())
    out.set("optimizer.betas", "[" + join(betas, ", ") + "]");
  if (const auto eps = in.text("optimizer.init_args.eps")) out.set("optimizer.eps", *eps);
}

}  // namespace

bool is_litgpt(ForeignConfig& in) {
  return in.has("checkpoint_dir") && (in.has("lora_r") || in.has("train"));
}

void convert_litgpt(ForeignConfig& in, OwnConfig& out) {
  const std::filesystem::path folder = in.text("checkpoint_dir").value_or("");
  out.set_text("model.path", folder.string(), "a Hugging Face folder with safetensors, or hub:OWNER/NAME");
  convert_lora(in, out);
  convert_data(in, out);
  convert_training(in, out);
  convert_optimizer(in, out);
  const std::string precision = in.text("precision").value_or("bf16-true");
  if (precision == "bf16-true" || precision == "bf16-mixed") {
    out.set("precision.preset", "bf16");
  } else if (precision == "32-true") {
    out.set("precision.preset", "fp32");
  } else {
    in.problem("precision",
               "is '" + escape_control(precision) + "', expected bf16-true, bf16-mixed or 32-true");
  }
  if (precision == "bf16-true") out.note("adapters and their moments are bf16 in litgpt, fp32 here");
  if (precision == "bf16-mixed")
    out.note("litgpt keeps the frozen weights in fp32 under bf16-mixed, here they are bf16");
  if (const auto output = in.text("out_dir")) out.set_text("checkpoint.output_dir", *output);
  for (const char* key : {"devices", "num_nodes"}) in.pass_over(key, "`lorikeet run --nproc N` says it");
  for (const char* key : {"logger_name", "log"}) in.pass_over(key, "metrics.jsonl in checkpoint.output_dir");
  in.pass_over("access_token", "HF_TOKEN, for hub: paths");
}

}  // namespace lorikeet::convert
