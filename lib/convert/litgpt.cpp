#include <cmath>
#include <filesystem>
#include <system_error>

#include "base/strings.h"
#include "convert/converters.h"

// The keys are the arguments of litgpt 0.5.9's finetune/lora.py, the defaults those of its `setup`.
namespace lorikeet::convert {
namespace {

void convert_lora(ForeignConfig& in, OwnConfig& out) {
  out.set("lora.rank", in.number_text("lora_r", "8"));
  out.set("lora.alpha", in.number_text("lora_alpha", "16"));
  out.set("lora.dropout", in.number_text("lora_dropout", "0.05"));
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
  out.set_list("lora.target_modules", modules, "names of Llama-shaped checkpoints");
}

void convert_quantisation(ForeignConfig& in, OwnConfig& out) {
  const auto quantize = in.text("quantize");
  if (!quantize) return;
  if (*quantize != "bnb.nf4" && *quantize != "bnb.nf4-dq")
    in.problem("quantize", "is '" + escape_control(*quantize) + "', expected null, bnb.nf4 or bnb.nf4-dq");
  out.set("precision.base_storage", "nf4", "quantize is '" + escape_control(*quantize) + "'");
  if (*quantize == "bnb.nf4") note_plain_scales(out, "quantize: bnb.nf4, not bnb.nf4-dq");
  out.note(
      "under quantize litgpt's finetune_lora puts a layer norm behind the embedding (bitsandbytes' "
      "StableEmbedding), here the model is the checkpoint's");
}

// What is held out; whether anything is.
bool convert_validation(ForeignConfig& in, OwnConfig& out, const std::string& default_fraction) {
  const std::string key = "data.init_args.val_split_fraction";
  const std::string fraction = in.number_text(key, default_fraction);
  if (in.number(key).value_or(1) == 0) return false;
  out.set("data.validation.fraction", fraction,
          in.has(key) ? "other rows than litgpt's" : "litgpt's default; other rows than there");
  return true;
}

// A file, or a folder with train.json and val.json (or .jsonl); whether anything is held out.
bool convert_json(ForeignConfig& in, OwnConfig& out, const std::filesystem::path& path) {
  std::error_code ignored;
  const bool file = path.extension() == ".json" || path.extension() == ".jsonl";
  if (!std::filesystem::is_directory(path, ignored) &&
      (file || in.has("data.init_args.val_split_fraction"))) {
    out.set_text("data.train.path", path.string());
    return convert_validation(in, out, "0.05");
  }
  const auto split = [&](const char* name) {
    const bool lines = !std::filesystem::exists(path / (std::string(name) + ".json"), ignored) &&
                       std::filesystem::exists(path / (std::string(name) + ".jsonl"), ignored);
    return (path / (std::string(name) + (lines ? ".jsonl" : ".json"))).string();
  };
  out.set_text("data.train.path", split("train"));
  out.set_text("data.validation.path", split("val"));
  if (in.has("data.init_args.val_split_fraction"))
    in.problem("data.init_args.val_split_fraction", "can't be given for a folder, which has val.json");
  return true;
}

void convert_data(ForeignConfig& in, OwnConfig& out) {
  bool held_out = false;
  const std::string name = last_part(in.text("data.class_path").value_or("Alpaca"));
  const auto file = in.text("data.init_args.json_path");
  if (name == "JSON" && file) {
    held_out = convert_json(in, out, *file);
  } else if (name == "Alpaca2k") {
    out.set_text("data.train.path", "hub:mhenrichsen/alpaca_2k_test");
    held_out = convert_validation(in, out, "0.05");
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
  if (held_out) {
    out.set_boolean("data.validation.keep_best", false);  // the last is litgpt's
    if (const auto every = in.count("eval.interval")) out.set_integer("data.validation.every_steps", *every);
  }
  in.pass_over("eval", held_out
                           ? "validation is over all held-out rows; answers come from `lorikeet generate`"
                           : "nothing is held out");
  out.set("data.train_on", in.boolean("data.init_args.mask_prompt", false) ? "roles" : "all");
  if (const auto length = in.count("train.max_seq_length")) {
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
  out.set_integer("batch.global", in.count("train.global_batch_size").value_or(16));
  in.pass_over("train.micro_batch_size", "chosen by memory; it changes no number here");
  out.note(
      "litgpt averages the loss of each micro-batch and then these means; here a step's loss is the mean "
      "over all "
      "its label tokens");
  out.note(
      "litgpt's steps run across the ends of epochs, and rows that don't fill the last one are left out; "
      "here an epoch's last step takes the rows that are left");
  out.set_integer("training.epochs", in.count("train.epochs").value_or(5));
  if (const auto steps = in.count("train.max_steps"))
    set_step_limit(out, "train.max_steps", "train.epochs", *steps);
  if (in.has("train.max_tokens"))
    in.problem("train.max_tokens", "isn't read by finetune_lora either; take it out");
  if (in.boolean("train.tie_embeddings", false))
    in.problem("train.tie_embeddings", "can't be chosen: config.json says it");
  out.set_integer("training.seed", in.integer("seed").value_or(1337));
  out.set("training.clip_grad_norm", in.number_text("train.max_norm", "null"));
  out.set("lr_scheduler.name", "cosine");
  out.set("lr_scheduler.warmup_ratio", "null");
  out.set_integer("lr_scheduler.warmup_steps", in.integer("train.lr_warmup_steps").value_or(100));
  if (in.has("train.lr_warmup_fraction"))
    in.problem("train.lr_warmup_fraction", "is a part of an epoch there; give train.lr_warmup_steps");
  in.pass_over("train.min_lr", "finetune_lora doesn't read it: its cosine ends at 0");
  if (const auto every = in.count("train.save_interval"))
    out.set_integer("checkpoint.save_every_steps", *every);
  out.set("metrics.log_every_steps", "1");
  in.pass_over("train.log_interval", "counts micro-batches there, steps here");
}

void convert_optimizer(ForeignConfig& in, OwnConfig& out) {
  const config::YamlNode* node = in.find("optimizer");
  const bool named = node == nullptr || node->is_scalar();
  const std::string name = last_part(in.text(named ? "optimizer" : "optimizer.class_path").value_or("AdamW"));
  if (name != "AdamW")
    in.problem("optimizer", "is '" + escape_control(name) + "', expected AdamW, the only one here");
  const auto argument = [&](const std::string& key, const std::string& fallback) {
    return named ? fallback : in.number_text("optimizer.init_args." + key, fallback);
  };
  out.set("optimizer.lr", argument("lr", "1e-3"));
  out.set("optimizer.weight_decay", argument("weight_decay", "0.01"));
  if (named) return;
  if (const auto betas = in.number_list("optimizer.init_args.betas")) out.set("optimizer.betas", *betas);
  if (in.has("optimizer.init_args.eps")) out.set("optimizer.eps", argument("eps", "null"));
}

}  // namespace

bool is_litgpt(ForeignConfig& in) {
  return in.has("checkpoint_dir") && (in.has("lora_r") || in.has("train"));
}

void convert_litgpt(ForeignConfig& in, OwnConfig& out) {
  const std::filesystem::path folder = in.text("checkpoint_dir").value_or("");
  out.set_text("model.path", folder.string(), "a Hugging Face folder with safetensors, or hub:OWNER/NAME");
  convert_lora(in, out);
  convert_quantisation(in, out);
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
  if (in.text("logger_name") == "tensorboard") {
    out.set_boolean("metrics.tensorboard", true);
  } else {
    in.pass_over("logger_name", "metrics.jsonl in checkpoint.output_dir");
  }
  in.pass_over("log", "the run's name and project in a tracker");
  in.pass_over("access_token", "HF_TOKEN, for hub: paths");
}

}  // namespace lorikeet::convert
