#include <algorithm>
#include <charconv>
#include <optional>

#include "base/strings.h"
#include "convert/converters.h"

namespace lorikeet::convert {
namespace {

// torchtune cuts nothing where max_seq_len is null; here a row beyond this many tokens is an error instead.
constexpr std::int64_t kUncutLength = 8192;

bool is_word_character(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_';
}

bool same_values(const config::YamlNode& a, const config::YamlNode& b) {
  if (a.kind != b.kind || a.text != b.text || a.items.size() != b.items.size()) return false;
  for (std::size_t i = 0; i < a.items.size(); ++i) {
    const config::YamlNode* other = a.is_mapping() ? b.find(a.items[i].key) : &b.items[i];
    if (other == nullptr || !same_values(a.items[i], *other)) return false;
  }
  return true;
}

// Whether dataset_val makes examples of the same files in the same way as dataset.
bool validates_on_same_files(ForeignConfig& in) {
  const config::YamlNode *training = in.find("dataset"), *validation = in.find("dataset_val");
  if (training == nullptr || validation == nullptr) return false;
  const auto without_part = [](config::YamlNode node) {
    std::erase_if(node.items, [](const auto& item) { return item.key == "split" || item.key == "packed"; });
    return node;
  };
  return same_values(without_part(*training), without_part(*validation));
}

// The split that both data sets are parts of, of dataset.split NAME[:P%] beside dataset_val.split NAME[P%:],
// whose rows are held out here; else dataset.split as it is.
std::string convert_held_out(ForeignConfig& in, OwnConfig& out) {
  const std::string split = in.text("dataset.split").value_or("train");
  const std::string rest = in.text("dataset_val.split").value_or("train");
  const auto steps = in.count("run_val_every_n_steps");
  in.pass_over("batch_size_val", "no number depends on it");
  const std::string name = split.substr(0, split.find('['));
  const std::size_t digits = name.size() + 2;  // behind "[:"
  std::int64_t trained = 0;
  if (digits < split.size()) std::from_chars(split.data() + digits, split.data() + split.size(), trained);
  const std::string percent = std::to_string(trained) + "%";
  const bool share = trained > 0 && trained < 100 && split == name + "[:" + percent + "]" &&
                     rest == name + "[" + percent + ":]" && validates_on_same_files(in);
  if (share) {
    const std::string held_out = format_number("%g", static_cast<double>(100 - trained) / 100);
    out.set("data.validation.fraction", held_out);
    if (steps) out.set_integer("data.validation.every_steps", *steps);
    out.note("torchtune trains on the first " + percent + " of the rows" +
             (steps ? "" : " and validates nothing (run_val_every_n_steps is null)") +
             "; here other rows are held out, the same share of them, and validated on" +
             (steps ? "" : " at the end of each epoch"));
  } else if (steps) {
    in.problem("dataset_val",
               "isn't the rest of dataset's rows (split: train[:95%] and train[95%:], all else equal): take "
               "out run_val_every_n_steps and set data.validation.path in the converted config");
  }
  in.pass_over("dataset_val", share ? "the rows of data.validation.fraction"
                                    : "nothing is validated: run_val_every_n_steps is null");
  return share ? name : split;
}

// A repository of the Hub or a folder, or files in it; or, where a builder of Hugging Face datasets such as
// "json" is the source, the local files that it reads.
void convert_source(ForeignConfig& in, OwnConfig& out, const std::string& fallback) {
  const std::string source = in.text("dataset.source").value_or(fallback);
  const auto files = in.text("dataset.data_files");
  const bool builder = source.find('/') == std::string::npos;
  const bool local = source.starts_with('/') || source.starts_with('.');
  if (files && (builder || files->starts_with('/'))) {
    out.set_text("data.train.path", *files);
  } else if (!builder) {
    out.set_text("data.train.path", (local ? source : hub_name(source, "")) + (files ? "/" + *files : ""));
  } else {
    in.problem("dataset.source", "is '" + escape_control(source) + "': expected a repository or data_files");
  }
  const std::string split = convert_held_out(in, out);
  const bool whole = !split.empty() && std::all_of(split.begin(), split.end(), is_word_character);
  if (!whole || (files && split != "train")) {
    in.problem("dataset.split", "is '" + escape_control(split) +
                                    "', expected the name of a whole split, or train[:95%] beside a "
                                    "dataset_val of the rest, train[95%:]; write those rows to a file");
  } else if (split != "train") {
    out.set_text("data.train.split", split);
  }
}

// Columns of the table {torchtune's name -> ours}, as the map in `key` renames them.
void convert_columns(ForeignConfig& in, OwnConfig& out,
                     const std::vector<std::pair<std::string, std::string>>& names) {
  for (const auto& [theirs, ours] : names) {
    const std::string column = in.text("dataset.column_map." + theirs).value_or(theirs);
    if (column != ours) out.set_text("data.train.columns." + ours, column);
  }
}

// Builders of data sets make messages; what becomes of them is the tokenizer's there, the template's here.
void note_prompts(ForeignConfig& in, OwnConfig& out, const std::string& builder) {
  const std::string tokenizer = in.text("tokenizer._component_").value_or("its tokenizer");
  const bool alpaca = builder.starts_with("alpaca"), instructions = alpaca || builder == "instruct_dataset";
  out.note(std::string("torchtune writes rows ") +
           (alpaca ? "as 'Below is an instruction ...' inside the format of " : "in the format of ") +
           escape_control(tokenizer) +
           "; here data.chat_template writes them: by default the checkpoint's own template, for a base "
           "checkpoint without one " +
           (instructions ? "the built-in alpaca" : "a built-in that you name") +
           (last_part(tokenizer) == "llama3_tokenizer"
                ? "; data.chat_template=llama3 is theirs but for the <|end_of_text|> behind each row"
                : "") +
           " (`lorikeet preview` shows it)");
}

void convert_dataset(ForeignConfig& in, OwnConfig& out) {
  const std::string name = last_part(in.text("dataset._component_").value_or(""));
  bool train_on_input = false;
  if (name == "alpaca_dataset" || name == "alpaca_cleaned_dataset") {
    convert_source(in, out, name == "alpaca_dataset" ? "tatsu-lab/alpaca" : "yahma/alpaca-cleaned");
    out.set("data.train.format", "alpaca");
    convert_columns(in, out, {{"instruction", "instruction"}, {"input", "input"}, {"output", "output"}});
    train_on_input = true;
  } else if (name == "instruct_dataset") {
    convert_source(in, out, "");
    out.set("data.train.format", "instruct");
    convert_columns(in, out, {{"input", "prompt"}, {"output", "completion"}});
  } else if (name == "chat_dataset") {
    convert_source(in, out, "");
    const std::string style = in.text("dataset.conversation_style").value_or("");
    const bool sharegpt = style == "sharegpt";
    if (!sharegpt && style != "openai")
      in.problem("dataset.conversation_style",
                 "is '" + escape_control(style) + "', expected openai or sharegpt");
    out.set("data.train.format", sharegpt ? "sharegpt" : "chat");
    const std::string ours = sharegpt ? "conversations" : "messages";
    if (const auto column = in.text("dataset.conversation_column"); column && *column != ours)
      out.set_text("data.train.columns." + ours, *column);
  } else if (name == "slimorca_dataset") {
    convert_source(in, out, "Open-Orca/SlimOrca-Dedup");
    out.set("data.train.preset", "slimorca");
  } else if (name == "text_completion_dataset") {
    convert_source(in, out, "");
    out.set("data.train.format", "text");
    if (const auto column = in.text("dataset.column"); column && *column != "text")
      out.set_text("data.train.columns.text", *column);
    train_on_input = true;
  } else {
    in.problem(
        "dataset._component_",
        "is '" + escape_control(name) +
            "', expected alpaca_dataset, alpaca_cleaned_dataset, instruct_dataset, "
            "chat_dataset, slimorca_dataset or text_completion_dataset; write its rows to a file of one "
            "of their forms");
  }
  if (name != "text_completion_dataset") note_prompts(in, out, name);
  if (in.has("dataset.new_system_prompt"))
    in.problem("dataset.new_system_prompt", "has no counterpart: put it into the rows");
  out.set("data.train_on", in.boolean("dataset.train_on_input", train_on_input) ? "all" : "roles");
}

}  // namespace

void convert_torchtune_data(ForeignConfig& in, OwnConfig& out, const ConvertOptions& options) {
  convert_dataset(in, out);
  const auto length = in.count("tokenizer.max_seq_len");
  if (length) {
    out.set_integer("data.max_seq_len", *length);
  } else {
    out.set("data.max_seq_len", std::to_string(kUncutLength), "null there: nothing is cut");
    out.set("data.overlong", "error");
  }
  if (last_part(in.text("dataset._component_").value_or("")) != "text_completion_dataset") {
    if (length)
      out.note(
          "torchtune puts the tokenizer's EOS in the place of the last token of a row that it cuts at "
          "max_seq_len; here the row is cut alone");
  } else {
    out.note(std::string("torchtune ") +
             (length ? "cuts a text at max_seq_len and leaves out the rest" : "keeps a text whole") +
             "; here text is split into chunks of data.max_seq_len that are all trained on" +
             (length ? ": shorten the texts themselves for the same rows" : ": raise it for longer texts"));
  }
  out.set_boolean("data.shuffle", in.boolean("shuffle", false));
  if (in.has("tokenizer.prompt_template"))
    in.problem("tokenizer.prompt_template",
               "would change what is trained on; choose data.chat_template instead");
  in.pass_over("tokenizer", "the tokenizer is the one in model.path");
  if (in.has("collate_fn")) in.problem("collate_fn", "can't be had here");

  const std::int64_t rows =
      product_of({in.count("batch_size").value_or(1), in.count("gradient_accumulation_steps").value_or(1),
                  options.devices});
  const std::string product =
      "batch_size x gradient_accumulation_steps x devices (" + std::to_string(options.devices) + ")";
  if (!in.boolean("dataset.packed", false)) {
    out.set("batch.global", std::to_string(rows), product);
  } else if (length) {
    out.set("batch.global_tokens", std::to_string(product_of({rows, *length})),
            product + " x max_seq_len: packs there, tokens here");
  } else {
    in.problem("dataset.packed", "needs tokenizer.max_seq_len");
  }
}

}  // namespace lorikeet::convert
