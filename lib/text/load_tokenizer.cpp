#include "base/error.h"
#include "base/file.h"
#include "base/hash.h"
#include "text/folder_config.h"
#include "text/tokenizer_json.h"

namespace lorikeet::text {
namespace {

constexpr std::uint64_t kTokenizerLimitBytes = std::uint64_t{256} << 20;

std::string fingerprint_of(const FolderConfig& config, const std::string& name, const std::string& bytes) {
  Sha256 hash;
  hash.field(name).field(bytes);
  for (const auto& [file, content] : config.files) hash.field(file).field(content);
  return hash.hex();
}

}  // namespace

std::shared_ptr<const Tokenizer> load_tokenizer(const std::filesystem::path& folder) {
  const std::filesystem::path json_path = folder / "tokenizer.json";
  const bool has_json = std::filesystem::exists(json_path);
  if (!has_json) {
    throw Error("[tokenizer] expected tokenizer.json or tokenizer.model in " + folder.string() +
                ", found neither; copy the tokenizer's files beside the checkpoint");
  }
  const FolderConfig config = read_folder_config(folder);
  const std::string bytes = read_file(json_path, kTokenizerLimitBytes);
  const Json json = Json::parse(bytes, json_path.string());
  return make_tokenizer_json(json, config, json_path.string(), "tokenizer.json",
                             fingerprint_of(config, "tokenizer.json", bytes));
}

}  // namespace lorikeet::text
