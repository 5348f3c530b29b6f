#include "recipes/merged_checkpoint.h"

#include <ATen/ATen.h>

#include "base/error.h"
#include "base/file.h"
#include "base/json_text.h"
#include "io/safetensors_writer.h"
#include "models/loading.h"
#include "ops/dtype.h"

namespace lorikeet::recipes {
namespace {

constexpr const char* kIndex = "model.safetensors.index.json";

// The bytes of a tensor with its update, in the tensor's dtype.
at::Tensor updated(const io::TensorView& view, const peft::WeightUpdate& update, const std::string& name) {
  std::string bytes(view.bytes);  // aligned, and ours
  const at::Tensor weight =
      at::from_blob(bytes.data(), view.shape, at::TensorOptions().dtype(ops::to_torch(view.dtype)));
  const at::Tensor sum = update.applied_to(weight).to(weight.scalar_type()).contiguous();
  if (at::isfinite(sum).all().item<bool>()) return sum;
  throw Error("[merge] " + name + " would get values that are NaN or infinite as " +
                  std::string(dtype_name(view.dtype)) +
                  ": base and adapter together are beyond its range, or the base has such values",
              ErrorKind::kRunFailed);
}

std::string_view bytes_of(const at::Tensor& tensor) {
  return {static_cast<const char*>(tensor.const_data_ptr()), tensor.nbytes()};
}

}  // namespace

MergedCheckpoint::MergedCheckpoint(const io::Checkpoint& base, const nn::CausalLMSpec& spec,
                                   std::map<std::string, peft::WeightUpdate> updates)
    : base_(base) {
  const auto in_file = [&](const std::string& name) {
    const io::TensorView* tensor = models::find_weight(base, spec.checkpoint_names, name);
    return tensor != nullptr ? tensor->name : name;
  };
  for (auto& [name, update] : updates) updates_.emplace(in_file(name), std::move(update));
  if (spec.shape.tied_head)
    part_or_share(in_file(spec.embedding_name + ".weight"), in_file(spec.head.name + ".weight"));
  for (const auto& [name, update] : updates_) {
    if (update.table.defined() && update.table.size(0) != spec.shape.vocab_size) rows_ = update.table.size(0);
    if (base_.find(name) == nullptr && !copies_.contains(name))
      throw Error("[merge] the adapter changes '" + name + "', which '" + base_.folder().string() +
                  "' doesn't have");
  }
}

void MergedCheckpoint::part_or_share(const std::string& embedding, const std::string& head) {
  const auto embeds = updates_.find(embedding), heads = updates_.find(head);
  if (embeds == updates_.end() && heads == updates_.end()) return;
  const bool one_table = embeds != updates_.end() && heads != updates_.end() &&
                         embeds->second.table.defined() && embeds->second.table.is_same(heads->second.table);
  if (!one_table) {
    copies_[head] = embedding;
  } else if (base_.find(head) == nullptr) {
    updates_.erase(heads);
  }
}

void MergedCheckpoint::write_weights(const std::filesystem::path& folder) const {
  for (const io::SafetensorsFile& file : base_.files()) write_file(file, folder / file.path().filename());
  if (std::filesystem::exists(base_.folder() / kIndex)) write_index(folder);
}

void MergedCheckpoint::write_file(const io::SafetensorsFile& file,
                                  const std::filesystem::path& target) const {
  // What a tensor of the merged file begins as; nullptr where that isn't of this file.
  const auto source = [&](const std::string& name) {
    const auto copy = copies_.find(name);
    return file.find(copy == copies_.end() ? name : copy->second);
  };
  std::vector<io::TensorSpec> specs;
  const auto add = [&](const std::string& name) {
    const io::TensorView* view = source(name);
    if (view == nullptr) return;
    const auto update = updates_.find(name);
    const bool table = update != updates_.end() && update->second.table.defined();
    specs.push_back({name, view->dtype, table ? update->second.table.sizes().vec() : view->shape});
  };
  for (const io::TensorView& view : file.tensors()) {
    if (!copies_.contains(view.name)) add(view.name);
  }
  for (const auto& [name, from] : copies_) add(name);
  io::SafetensorsWriter writer(target, specs, file.metadata());
  for (const io::TensorSpec& spec : writer.order()) {
    const io::TensorView& view = *source(spec.name);
    const auto update = updates_.find(spec.name);
    if (update == updates_.end()) {
      writer.write(view.bytes);
    } else {
      writer.write(bytes_of(updated(view, update->second, spec.name)));
    }
    file.drop_pages(view);
  }
  writer.finish();
}

void MergedCheckpoint::write_index(const std::filesystem::path& folder) const {
  std::string index = read_file(base_.folder() / kIndex);
  std::uint64_t total = 0;
  for (const io::SafetensorsFile& file : base_.files()) {
    const auto name = file.path().filename();
    for (const auto& [tensor, from] : copies_) {
      if (file.find(from) != nullptr) index = with_member(index, {"weight_map", tensor}, name.string());
    }
    const auto written = io::SafetensorsFile::open(folder / name);
    for (const io::TensorView& view : written.tensors()) total += view.bytes.size();
  }
  if (!copies_.empty() || rows_ > 0)
    index = with_member(index, {"metadata", "total_size"}, static_cast<std::int64_t>(total));
  write_file_atomic(folder / kIndex, index);
}

void MergedCheckpoint::write_config(const std::filesystem::path& folder) const {
  const std::filesystem::path path = folder / "config.json";
  std::string config = read_file(path);
  const Json json = Json::parse(config, path.string());
  const bool nested = JsonView(json, path.string()).maybe("text_config").has_value();
  const auto set = [&](const char* key, const Json& value) {
    config = with_member(
        config, nested ? std::vector<std::string>{"text_config", key} : std::vector<std::string>{key}, value);
    if (nested && JsonView(json, path.string()).maybe(key)) config = with_member(config, {key}, value);
  };
  if (rows_ > 0) set("vocab_size", rows_);
  if (!copies_.empty()) set("tie_word_embeddings", false);
  if (rows_ > 0 || !copies_.empty()) write_file_atomic(path, config);
}

}  // namespace lorikeet::recipes
