#include <filesystem>
#include <system_error>
#include <utility>

#include "base/strings.h"
#include "config/yaml.h"
#include "convert/converters.h"
#include "text/chat_template.h"

namespace lorikeet::convert {
namespace {

/// The settings of one source, as members of a YAML flow mapping or as settings of data.train.
using SourceSettings = std::vector<std::pair<std::string, std::string>>;

void convert_columns(ForeignConfig& in, const std::string& key, const std::vector<std::string>& fields,
                     SourceSettings& out) {
  std::vector<std::string> columns;
  for (std::size_t i = 0; i + 1 < fields.size(); i += 2) {
    if (const auto column = in.text(key + "." + fields[i]); column && *column != fields[i + 1])
      columns.push_back(fields[i + 1] + ": " + config::quote_yaml(*column));
  }
  if (!columns.empty()) out.emplace_back("columns", "{" + join(columns, ", ") + "}");
}

// axolotl's names of speakers, by the role that each stands for. Only those that are known here can be had.
void convert_roles(ForeignConfig& in, const std::string& key) {
  const config::YamlNode* given = in.find(key);
  if (given == nullptr || !given->is_mapping()) return;
  for (const config::YamlNode& role : given->items) {
    const std::string role_key = key + "." + role.key;
    for (const std::string& name : in.list(role_key)) {
      if (text::role_of_speaker(name) == role.key) continue;
      in.problem(role_key, "has '" + escape_control(name) + "', which can't be renamed to '" +
                               escape_control(role.key) + "' here; rename it in the rows");
    }
  }
  in.pass_over(key, "these names of speakers are known (docs/data.md)");
}

// Conversations: {"from", "value"} under "conversations" is sharegpt here, all others are chat.
void convert_messages(ForeignConfig& in, const std::string& key, SourceSettings& out) {
  const auto role = in.text(key + ".message_property_mappings.role")
                        .value_or(in.text(key + ".message_field_role").value_or("role"));
  const auto content = in.text(key + ".message_property_mappings.content")
                           .value_or(in.text(key + ".message_field_content").value_or("content"));
  const std::string messages = in.text(key + ".field_messages").value_or("messages");
  std::vector<std::string> columns;
  const auto name = [&](const std::string& field, const std::string& column) {
    if (column != field) columns.push_back(field + ": " + config::quote_yaml(column));
  };
  const bool sharegpt = role == "from" && content == "value";
  out.emplace_back("format", sharegpt ? "sharegpt" : "chat");
  name(sharegpt ? "conversations" : "messages", messages);
  if (!sharegpt) {
    name("role", role);
    name("content", content);
  }
  if (!columns.empty()) out.emplace_back("columns", "{" + join(columns, ", ") + "}");
  for (const char* trained : {"roles_to_train", "train_on_eos", "train_on_eot", "message_field_training",
                              "message_field_training_detail"}) {
    const std::string name_of = key + "." + trained;
    const auto roles =
        std::string_view(trained) == "roles_to_train" ? in.list(name_of) : std::vector<std::string>();
    const bool usual = std::string_view(trained) == "roles_to_train"
                           ? roles.empty() || roles == std::vector<std::string>{"assistant"} ||
                                 roles == std::vector<std::string>{"gpt", "assistant"}
                           : in.text(name_of).value_or("turn") == "turn";
    if (!usual) in.problem(name_of, "can't be had here: assistant turns are trained on, with what ends them");
  }
  convert_roles(in, key + ".roles");
}

void convert_source(ForeignConfig& in, const std::string& key, SourceSettings& out) {
  const std::string path = in.text(key + ".path").value_or("");
  const auto files = in.text(key + ".data_files");
  const bool is_local = in.has(key + ".ds_type") || is_local_for_axolotl(path);
  if (path.empty()) in.problem(key + ".path", "is missing");
  const std::string revision = in.text(key + ".revision").value_or("");
  out.emplace_back("path",
                   config::quote_yaml(is_local ? files.value_or(path)
                                               : hub_name(path, revision) + (files ? "/" + *files : "")));
  in.pass_over(key + ".ds_type", "the file's content says it");
  in.pass_over(key + ".trust_remote_code", "no code of data sets is run");
  if (in.has(key + ".name"))
    in.problem(key + ".name", "can't be chosen here: name its files (data.train.path)");
  if (const std::string split = in.text(key + ".split").value_or("train"); split != "train") {
    if (split.find_first_of("[:%+") != std::string::npos) {
      in.problem(key + ".split", "is '" + escape_control(split) +
                                     "', expected the name of a whole split; write those rows to a file");
    } else {
      out.emplace_back("split", config::quote_yaml(split));
    }
  }
  const std::string type = in.text(key + ".type").value_or("");
  if (type == "alpaca") {
    out.emplace_back("format", "alpaca");
    convert_columns(
        in, key, {"field_instruction", "instruction", "field_input", "input", "field_output", "output"}, out);
  } else if (type == "chat_template" || type == "chat_template.default") {
    convert_messages(in, key, out);
  } else if (type == "completion") {
    out.emplace_back("format", "text");
    convert_columns(in, key, {"field", "text"}, out);
  } else {
    in.problem(key + ".type",
               "is '" + escape_control(type) +
                   "', expected alpaca, chat_template or completion; write its rows in one of these forms");
  }
}

// The template for all sources: those of alpaca have their own there.
void convert_template(ForeignConfig& in, OwnConfig& out, bool alpaca, bool chat) {
  const std::string name = in.text("chat_template").value_or("tokenizer_default");
  if (alpaca && chat) {
    in.problem("datasets", "mixes alpaca's prompts and a chat template: there is one template for all here");
  } else if (alpaca) {
    out.set("data.chat_template", "alpaca");
    in.pass_over("chat_template", "rows of type alpaca don't use it");
  } else if (chat && name == "tokenizer_default") {
    out.set("data.chat_template", "auto", "the checkpoint's own");
  } else if (chat && (name == "chatml" || name == "llama3")) {
    // axolotl's chatml strips nothing and has no BOS, unlike the one of that name here.
    out.set("data.chat_template", name == "chatml" ? "chatml-plain" : name,
            "hold it against axolotl's with `lorikeet preview`");
  } else if (chat) {
    in.problem("chat_template",
               "is '" + escape_control(name) +
                   "', expected tokenizer_default, chatml or llama3; or a file: data.chat_template");
  } else {
    in.pass_over("chat_template", "rows of text need none");
  }
}

void convert_sources(ForeignConfig& in, OwnConfig& out) {
  const std::size_t count = in.size("datasets");
  if (count == 0) in.problem("datasets", "is missing: expected at least one");
  const bool once = in.boolean("dataset_exact_deduplication", false);
  if (once && count > 1)
    out.note("duplicates are removed within each data set here, over all of them in axolotl");
  bool alpaca = false, chat = false;
  std::vector<std::string> sources;
  for (std::size_t i = 0; i < count; ++i) {
    SourceSettings settings;
    convert_source(in, "datasets." + std::to_string(i), settings);
    if (once) settings.emplace_back("remove_duplicates", "true");
    std::vector<std::string> members;
    for (const auto& [name, value] : settings) {
      alpaca = alpaca || value == "alpaca";
      chat = chat || value == "chat" || value == "sharegpt";
      if (count == 1) out.set("data.train." + name, value);
      members.push_back(name + ": " + value);
    }
    sources.push_back("{" + join(members, ", ") + "}");
  }
  if (count > 1) out.set("data.train.sources", "[" + join(sources, ", ") + "]");
  convert_template(in, out, alpaca, chat);
}

}  // namespace

bool is_local_for_axolotl(const std::string& path) {
  std::error_code ignored;
  return path.starts_with('/') || path.starts_with('.') || path.find('/') == std::string::npos ||
         std::filesystem::exists(path, ignored);
}

void convert_axolotl_data(ForeignConfig& in, OwnConfig& out, const ConvertOptions& options) {
  convert_sources(in, out);
  const std::int64_t length = in.count("sequence_len").value_or(512);
  out.set_integer("data.max_seq_len", length);
  const std::string longer = ascii_lower(in.text("excess_length_strategy").value_or("drop"));
  out.set_text("data.overlong", longer == "raise" ? "error" : longer);
  if (in.boolean("train_on_inputs", false)) {
    out.set("data.train_on", "all", "of chat_template rows axolotl leaves out the template's own tokens");
  } else {
    out.set("data.train_on", "roles");
  }
  if (in.has("test_datasets")) in.problem("test_datasets", "can't be converted: set data.validation.path");
  const double held_out = in.number("val_set_size").value_or(0);
  if (held_out >= 1) in.problem("val_set_size", "counts rows: give the part of the rows that they are");
  if (held_out > 0) {
    out.set("data.validation.fraction", in.number_text("val_set_size", "0"), "other rows than axolotl's");
    if (const auto steps = in.integer("eval_steps"); steps.value_or(0) > 0)
      out.set_integer("data.validation.every_steps", *steps);
  } else {
    in.pass_over("eval_steps", "nothing is validated: val_set_size is 0");
  }
  for (const char* key : {"evals_per_epoch", "eval_strategy"})
    in.pass_over(key, "at the end of each epoch, or see data.validation.every_steps");
  for (const char* key :
       {"dataset_prepared_path", "dataset_processes", "eval_sample_packing", "pad_to_sequence_len",
        "eval_batch_size", "remove_unused_columns", "skip_prepare_dataset", "shuffle_merged_datasets",
        "sample_packing_group_size", "sample_packing_bin_size", "dataset_keep_in_memory",
        "max_packed_sequence_len", "multipack_real_batches", "pad_to_multiple_of"})
    in.pass_over(key, "not needed");
  if (in.has("eot_tokens")) in.pass_over("eot_tokens", "the template's own end of a turn is trained on");

  if (in.has("batch_size"))
    in.problem("batch_size", "isn't advised there either: give gradient_accumulation_steps");
  const std::int64_t rows =
      product_of({in.count("micro_batch_size").value_or(1),
                  in.count("gradient_accumulation_steps").value_or(1), options.devices});
  const std::string product =
      "micro_batch_size x gradient_accumulation_steps x devices (" + std::to_string(options.devices) + ")";
  if (in.boolean("sample_packing", false)) {
    out.set("batch.global_tokens", std::to_string(product_of({rows, length})),
            product + " x sequence_len: packs there, tokens here");
  } else {
    out.set("batch.global", std::to_string(rows), product);
  }
}

}  // namespace lorikeet::convert
