#include "io/checkpoint.h"

#include <algorithm>
#include <set>

#include "base/counted.h"
#include "base/error.h"
#include "base/hash.h"
#include "base/strings.h"
#include "io/shard_index.h"

namespace lorikeet::io {
namespace {

bool is_file(const std::filesystem::path& path) {
  std::error_code ignored;
  return std::filesystem::is_regular_file(path, ignored);
}

[[noreturn]] void fail_without_weights(const std::filesystem::path& folder) {
  const std::string name = escape_control(folder.string());
  std::error_code ignored;
  std::set<std::string> others;
  bool safetensors = false;
  for (const auto& entry : std::filesystem::directory_iterator(folder, ignored)) {
    const std::string extension = entry.path().extension().string();
    if (extension == ".bin" || extension == ".pth" || extension == ".pt" || extension == ".gguf")
      others.insert(extension);
    safetensors = safetensors || extension == ".safetensors";
  }
  if (is_file(folder / "adapter_config.json")) {
    throw Error("[checkpoint] '" + name +
                "' holds a PEFT adapter, not a model; give the model that it belongs to here");
  }
  if (safetensors) {
    throw Error("[checkpoint] '" + name + "': expected " + kWeightsFile + " or " + kShardIndexFile +
                ", got only other .safetensors files; is the index missing?");
  }
  if (!others.empty()) {
    throw Error("[checkpoint] '" + name + "': expected safetensors, got weights as " +
                join({others.begin(), others.end()}, ", ") +
                "; convert them, e.g. in Python: AutoModelForCausalLM.from_pretrained('" + name +
                "').save_pretrained('new folder')");
  }
  throw Error("[checkpoint] '" + name + "': expected " + kWeightsFile + " or " + kShardIndexFile +
              ", got neither; is this a Hugging Face model folder, wholly downloaded?");
}

// At most 10 names, and how many more there are.
std::string some_of(const std::vector<std::string>& names) { return escape_control(join_some(names, 10)); }

// Opens nothing before all shards are known to be there: all that are absent go into one error.
void require_shards(const std::filesystem::path& folder, const std::vector<std::string>& shards) {
  std::vector<std::string> absent;
  for (const std::string& shard : shards) {
    if (!is_file(folder / shard)) absent.push_back(shard);
  }
  if (absent.empty()) return;
  throw Error("[checkpoint] '" + escape_control((folder / kShardIndexFile).string()) + "' names " +
              counted(shards.size(), "file") + ", of which " + counted(absent.size(), "is", "are") +
              " not there: " + some_of(absent) + "; download the rest");
}

}  // namespace

bool looks_like_hub_id(std::string_view text) {
  const std::size_t slash = text.find('/');
  if (slash == std::string_view::npos) return false;
  const auto part_is_good = [](std::string_view part) {
    if (part.empty() || part.size() > 96 || part.front() == '.' || part.front() == '-') return false;
    return std::all_of(part.begin(), part.end(), [](unsigned char c) {
      return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '-' ||
             c == '_' || c == '.';
    });
  };
  return part_is_good(text.substr(0, slash)) && part_is_good(text.substr(slash + 1));
}

void require_model_folder(const std::filesystem::path& folder) {
  std::error_code ignored;
  if (std::filesystem::is_directory(folder, ignored)) return;
  const std::string name = escape_control(folder.string());
  if (std::filesystem::exists(folder, ignored))
    throw Error("[checkpoint] '" + name +
                "': expected the model's folder, got a file; give the folder it is in");
  // Where ready-made configs look for it: the model's name is known, not who publishes it.
  if (folder.parent_path() == "models") {
    throw Error("[checkpoint] there is no folder '" + name +
                "'; give another by model.path, or hub:PUBLISHER/" +
                escape_control(folder.filename().string()) +
                " with the publisher's name on the Hugging Face hub, which downloads it into its cache");
  }
  if (looks_like_hub_id(folder.string())) {
    throw Error("[checkpoint] there is no folder '" + name +
                "'; if it is a model of the Hugging Face hub, give it as hub:" + name +
                ", which downloads it into its cache");
  }
  throw Error("[checkpoint] there is no folder '" + name + "'; expected a Hugging Face model folder");
}

Checkpoint Checkpoint::open(const std::filesystem::path& folder) {
  require_model_folder(folder);
  Checkpoint checkpoint;
  checkpoint.folder_ = folder;
  // Where both are there, the single file wins, as it does in transformers.
  if (is_file(folder / kWeightsFile)) {
    checkpoint.files_.reserve(1);
    checkpoint.add_file(folder / kWeightsFile);
    return checkpoint;
  }
  if (!is_file(folder / kShardIndexFile)) fail_without_weights(folder);

  const ShardIndex index = read_shard_index(folder / kShardIndexFile);
  const std::vector<std::string> shards = index.shards();
  require_shards(folder, shards);
  // TensorView pointers go into files_: it must not grow beyond what is reserved.
  checkpoint.files_.reserve(shards.size());
  for (const std::string& shard : shards) checkpoint.add_file(folder / shard);

  std::vector<std::string> misplaced;
  for (const auto& [name, shard] : index.shard_of) {
    const TensorView* tensor = checkpoint.find(name);
    if (tensor == nullptr || checkpoint.files_[tensor->file].path().filename() != shard)
      misplaced.push_back(name + " (" + shard + ")");
  }
  if (!misplaced.empty()) {
    throw Error("[checkpoint] '" + escape_control((folder / kShardIndexFile).string()) + "' places " +
                counted(misplaced.size(), "tensor") +
                " in files that don't hold them: " + some_of(misplaced) + "; download the folder again");
  }
  return checkpoint;
}

void Checkpoint::add_file(const std::filesystem::path& path) {
  const std::size_t number = files_.size();
  files_.push_back(SafetensorsFile::open(path, number));
  for (const TensorView& tensor : files_.back().tensors()) {
    const auto [it, fresh] = by_name_.emplace(tensor.name, &tensor);
    if (fresh) continue;
    throw Error("[checkpoint] the tensor '" + escape_control(tensor.name) + "' stands in '" +
                escape_control(files_[it->second->file].path().string()) + "' and in '" +
                escape_control(path.string()) + "'; expected each once: download the folder again");
  }
}

const TensorView* Checkpoint::find(std::string_view name) const {
  if (const auto it = by_name_.find(name); it != by_name_.end()) return it->second;
  const auto part = parts_.find(name);
  return part == parts_.end() ? nullptr : &part->second;
}

void Checkpoint::name_part(TensorView part) {
  std::string name = part.name;
  parts_.emplace(std::move(name), std::move(part));
}

std::uint64_t Checkpoint::total_bytes() const {
  std::uint64_t total = 0;
  for (const auto& [name, tensor] : by_name_) total += tensor->bytes.size();
  return total;
}

std::string Checkpoint::fingerprint() const {
  static constexpr std::size_t kSample = 256;  // within one page: one read a tensor
  Sha256 hash;
  hash.field("lorikeet checkpoint 1");
  for (const auto& [name, tensor] : by_name_) {
    hash.field(name).field(dtype_safetensors_name(tensor->dtype));
    for (const std::int64_t extent : tensor->shape) hash.field(std::to_string(extent));
    const std::size_t middle = tensor->bytes.size() / 2;
    hash.field(tensor->bytes.substr(middle - std::min(middle, kSample / 2), kSample));
    drop_pages(*tensor);  // one read may map megabytes around it
  }
  return hash.hex();
}

}  // namespace lorikeet::io
