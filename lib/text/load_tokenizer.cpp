#include "base/error.h"
#include "base/file.h"
#include "base/hash.h"
#include "base/strings.h"
#include "text/folder_config.h"
#include "text/new_tokens.h"
#include "text/normalizer.h"
#include "text/sentencepiece_tokenizer.h"
#include "text/tokenizer_json.h"

namespace lorikeet::text {
namespace {

constexpr std::uint64_t kTokenizerLimitBytes = std::uint64_t{256} << 20;
// Each merge written as a pair is three values: the largest vocabularies of today make about two million.
constexpr std::size_t kTokenizerLimitValues = std::size_t{1} << 23;

std::string fingerprint_of(const FolderConfig& config, const std::string& name, const std::string& bytes) {
  Sha256 hash;
  hash.field(name).field(bytes);
  for (const auto& [file, content] : config.files) hash.field(file).field(content);
  return hash.hex();
}

// Llama 3's original `tokenizer.model` is a list of "<base64> <rank>" lines.
bool looks_like_tiktoken(std::string_view bytes) {
  const std::size_t space = bytes.find(' ');
  return space != std::string_view::npos && space > 0 && space < 512 &&
         bytes.find_first_not_of("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/=") ==
             space &&
         space + 1 < bytes.size() && bytes[space + 1] >= '0' && bytes[space + 1] <= '9';
}

// A word is found in the normalised text. Llama 2's normaliser puts "▁" before every stretch of text, and so
// before the word itself: it would be found behind a blank alone, and take the blank with it.
void require_found_within_text(const std::vector<AddedToken>& added, const JsonView& json) {
  const auto settings = json.maybe("normalizer");
  if (!settings) return;
  const auto normalizer = make_normalizer(*settings);
  const auto normal = [&](const std::string& text) {
    NormalText normal{text, true};
    normalizer->apply(normal);
    return normal.text;
  };
  for (const AddedToken& token : added) {
    if (!token.normalized || normal("x" + token.content).find(normal(token.content)) != std::string::npos)
      continue;
    throw Error(
        "[model.add_tokens] expected a tokenizer that finds '" + escape_control(token.content) +
        "' anywhere in a text, got " + json.where() + ", whose normalizer makes '" +
        escape_control(normal(token.content)) +
        "' of it: it would be found at the start of a text or after a blank alone, and take the blank "
        "with it; take the files that AutoTokenizer.from_pretrained(...).save_pretrained(...) of "
        "transformers 5 writes of a LlamaTokenizer, with a Metaspace pre_tokenizer in the normalizer's "
        "place (tokens of model.add_special_tokens, which rows can't say, aren't normalised)");
  }
}

}  // namespace

std::shared_ptr<const Tokenizer> load_tokenizer(const std::filesystem::path& folder) {
  return load_tokenizer(folder, {});
}

std::shared_ptr<const Tokenizer> load_tokenizer(const std::filesystem::path& folder,
                                                const std::vector<AddedToken>& added) {
  const std::filesystem::path json_path = folder / "tokenizer.json";
  const std::filesystem::path model_path = folder / "tokenizer.model";
  const bool has_json = std::filesystem::exists(json_path);
  const bool has_model = std::filesystem::exists(model_path);
  if (!has_json && !has_model) {
    const auto is_there = [&](const char* name) { return std::filesystem::exists(folder / name); };
    std::string other;
    if (is_there("tekken.json"))
      other = " (tekken.json is not read; transformers' checkpoints of the same model have a tokenizer.json)";
    if (is_there("tiktoken.model"))
      other =
          " (tiktoken.model is not read; convert it to a tokenizer.json, for which tokenizers and "
          "transformers have tools)";
    throw Error("[tokenizer] expected tokenizer.json or tokenizer.model in " + folder.string() +
                ", found neither" + other + "; copy the tokenizer's files beside the checkpoint");
  }
  FolderConfig config = read_folder_config(folder);
  config.added_tokens.insert(config.added_tokens.end(), added.begin(), added.end());
  if (!added.empty()) config.files.emplace_back("added tokens", tokenizer_config_with("{}", added));
  if (has_json) {
    std::string bytes = read_file(json_path, kTokenizerLimitBytes);
    if (!added.empty()) bytes = tokenizer_json_with(bytes, added);
    const Json json = Json::parse(bytes, json_path.string(), {.max_values = kTokenizerLimitValues});
    if (!added.empty()) require_found_within_text(added, JsonView(json, json_path.string()));
    const std::string description =
        has_model ? "tokenizer.json (chosen over tokenizer.model, which is there too)" : "tokenizer.json";
    return make_tokenizer_json(json, config, json_path.string(), description,
                               fingerprint_of(config, "tokenizer.json", bytes));
  }
  const std::string bytes = read_file(model_path, kTokenizerLimitBytes);
  if (looks_like_tiktoken(bytes)) {
    throw Error("[" + model_path.string() +
                "] is a tiktoken vocabulary, which is not supported; expected a sentencepiece model, or "
                "tokenizer.json beside it (every Hugging Face checkpoint of the model has one)");
  }
  return make_sentencepiece_tokenizer(bytes, config, model_path.string(), "tokenizer.model",
                                      fingerprint_of(config, "tokenizer.model", bytes));
}

}  // namespace lorikeet::text
