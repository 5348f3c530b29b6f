#include "recipes/merged_checkpoint.h"

#include <ATen/ATen.h>

#include <cstring>

#include "base/error.h"
#include "base/file.h"
#include "base/json_text.h"
#include "io/shard_index.h"
#include "models/loading.h"
#include "models/quantized_weights.h"
#include "models/registry.h"
#include "ops/dtype.h"
#include "recipes/interrupt.h"

namespace lorikeet::recipes {
namespace {

// Bytes of a file as a tensor, copied.
at::Tensor numbers_of(const io::TensorView& view) {
  at::Tensor numbers = at::empty(view.shape, ops::to_torch(view.dtype));
  std::memcpy(numbers.mutable_data_ptr(), view.bytes.data(), view.bytes.size());
  return numbers;
}

std::string_view bytes_of(const at::Tensor& tensor) {
  return {static_cast<const char*>(tensor.const_data_ptr()), tensor.nbytes()};
}

}  // namespace

MergedCheckpoint::MergedCheckpoint(const io::Checkpoint& base, const nn::CausalLMSpec& spec,
                                   std::map<std::string, peft::WeightUpdate> updates,
                                   const std::optional<precision::Quantization>& quantization)
    : base_(base), quantization_(quantization) {
  const io::CheckpointNames& names = spec.checkpoint_names;
  const std::string embedding = spec.embedding_name + ".weight", head = spec.head.name + ".weight";
  const io::TensorView* table = models::find_weight(base, names, embedding);
  const auto in_file = [&](const std::string& name) {
    const io::TensorView* tensor = models::find_weight(base, names, name);
    if (tensor != nullptr) return tensor->name;
    return table != nullptr ? names.spelled_like(name, embedding, table->name) : name;
  };
  for (auto& [name, update] : updates) updates_.emplace(in_file(name), std::move(update));
  if (quantization_) {
    for (const auto& [name, view] : base_.tensors()) {
      for (const io::TensorView* companion : models::quantization_tensors(base_, *view))
        companions_.insert(companion->name);
    }
    for (models::StackNumbers& stack : models::mxfp4_stacks(base_, names)) {
      companions_.insert({stack.blocks, stack.scales});
      std::string name = stack.name;
      stacks_.emplace(std::move(name), std::move(stack));
    }
    if (table != nullptr) numbers_ = table->dtype;
  }
  if (spec.shape.tied_head) part_or_share(in_file(embedding), in_file(head));
  for (const auto& [name, update] : updates_) {
    const io::TensorView* tensor = base_.find(name);
    if (tensor != nullptr && tensor->part) changed_parts_[tensor->part->of].push_back(tensor);
    if (update.table.defined() && update.table.size(0) != spec.shape.vocab_size) rows_ = update.table.size(0);
    if (tensor == nullptr && !copies_.contains(name))
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
  if (std::filesystem::exists(base_.folder() / io::kShardIndexFile)) write_index(folder);
}

std::uint64_t MergedCheckpoint::bytes() const {
  std::uint64_t total = 0;
  for (const io::SafetensorsFile& file : base_.files()) {
    for (const io::TensorSpec& spec : specs(file)) total += io::byte_size(spec);
  }
  return total;
}

const io::TensorView* MergedCheckpoint::source(const io::SafetensorsFile& file,
                                               const std::string& name) const {
  if (const auto stack = stacks_.find(name); stack != stacks_.end()) return file.find(stack->second.blocks);
  const auto copy = copies_.find(name);
  return file.find(copy == copies_.end() ? name : copy->second);
}

std::vector<io::TensorSpec> MergedCheckpoint::specs(const io::SafetensorsFile& file) const {
  std::vector<io::TensorSpec> specs;
  const auto add = [&](const std::string& name) {
    const io::TensorView* view = source(file, name);
    if (view == nullptr) return;
    io::TensorSpec spec{name, view->dtype, view->shape};
    if (models::is_quantized(base_, *view)) spec = {name, numbers_, models::quantized_shape(base_, *view)};
    if (const auto stack = stacks_.find(name); stack != stacks_.end())
      spec = {name, numbers_, stack->second.shape};
    const auto update = updates_.find(name);
    if (update != updates_.end() && update->second.table.defined())
      spec.shape = update->second.table.sizes().vec();
    specs.push_back(std::move(spec));
  };
  for (const io::TensorView& view : file.tensors()) {
    if (!copies_.contains(view.name) && !companions_.contains(view.name)) add(view.name);
  }
  for (const auto& [name, stack] : stacks_) add(name);
  for (const auto& [name, from] : copies_) add(name);
  return specs;
}

at::Tensor MergedCheckpoint::merged_stack(const models::StackNumbers& stack) const {
  at::Tensor numbers = at::empty(stack.shape, ops::to_torch(numbers_));
  for (const models::StackedMatrix& matrix : stack.matrices) {
    at::Tensor own = models::dequantized(base_, *base_.find(matrix.name), *quantization_);
    const auto update = updates_.find(matrix.name);
    if (update != updates_.end()) own = update->second.applied_to(own);
    numbers.as_strided({matrix.rows, matrix.columns}, {matrix.row_step, matrix.element_step}, matrix.first)
        .copy_(own);
  }
  return numbers;
}

at::Tensor MergedCheckpoint::merged(const io::TensorView& view, const io::TensorSpec& spec) const {
  const auto stack = stacks_.find(spec.name);
  at::Tensor numbers = stack != stacks_.end()              ? merged_stack(stack->second)
                       : models::is_quantized(base_, view) ? models::dequantized(base_, view, *quantization_)
                                                           : numbers_of(view);
  const auto update = updates_.find(spec.name);
  if (update != updates_.end()) numbers = update->second.applied_to(numbers);
  if (const auto parts = changed_parts_.find(spec.name); parts != changed_parts_.end()) {
    for (const io::TensorView* part : parts->second) {
      const auto begin = static_cast<std::size_t>(part->bytes.data() - view.bytes.data());
      const at::Tensor own = numbers.as_strided(part->shape, {part->part->row_step, part->part->element_step},
                                                static_cast<std::int64_t>(begin / dtype_size(view.dtype)));
      own.copy_(updates_.at(part->name).applied_to(own.contiguous()));
    }
  }
  numbers = numbers.to(ops::to_torch(spec.dtype)).contiguous();
  if (at::isfinite(numbers).all().item<bool>()) return numbers;
  throw Error("[merge] " + spec.name + " would get values that are NaN or infinite as " +
                  std::string(dtype_name(spec.dtype)) +
                  ": base and adapter together are beyond its range, or the base has such values",
              ErrorKind::kRunFailed);
}

void MergedCheckpoint::write_file(const io::SafetensorsFile& file,
                                  const std::filesystem::path& target) const {
  io::SafetensorsWriter writer(target, specs(file), file.metadata());
  for (const io::TensorSpec& spec : writer.order()) {
    InterruptGuard::stop_if_requested();
    const io::TensorView& view = *source(file, spec.name);
    if (!updates_.contains(spec.name) && !changed_parts_.contains(spec.name) &&
        !stacks_.contains(spec.name) && !models::is_quantized(base_, view)) {
      writer.write(view.bytes);
    } else {
      writer.write(bytes_of(merged(view, spec)));
    }
    file.drop_pages(view);
  }
  writer.finish();
}

void MergedCheckpoint::write_index(const std::filesystem::path& folder) const {
  std::string index = read_file(base_.folder() / io::kShardIndexFile);
  Json places;
  std::uint64_t total = 0;
  for (const io::SafetensorsFile& file : base_.files()) {
    const auto name = file.path().filename();
    for (const auto& [tensor, from] : copies_) {
      if (file.find(from) != nullptr) index = with_member(index, {"weight_map", tensor}, name.string());
    }
    const auto written = io::SafetensorsFile::open(folder / name);
    for (const io::TensorView& view : written.tensors()) {
      total += view.bytes.size();
      places.set(view.name, name.string());
    }
  }
  // Companions of quantised tensors are gone.
  if (quantization_) index = with_member(index, {"weight_map"}, places);
  if (!copies_.empty() || rows_ > 0 || quantization_)
    index = with_member(index, {"metadata", "total_size"}, static_cast<std::int64_t>(total));
  write_file_atomic(folder / io::kShardIndexFile, index);
}

void MergedCheckpoint::write_config(const std::filesystem::path& folder) const {
  const std::filesystem::path path = folder / "config.json";
  std::string config = read_file(path);
  const Json json = models::read_config_json(folder);
  const bool nested = JsonView(json, path.string()).maybe("text_config").has_value();
  const auto set = [&](const char* key, const Json& value) {
    config = with_member(
        config, nested ? std::vector<std::string>{"text_config", key} : std::vector<std::string>{key}, value);
    if (nested && JsonView(json, path.string()).maybe(key)) config = with_member(config, {key}, value);
  };
  if (rows_ > 0) set("vocab_size", rows_);
  if (!copies_.empty()) {
    set("tie_word_embeddings", false);
    // transformers obeys the one at the top level, which is true where it is absent.
    config = with_member(config, {"tie_word_embeddings"}, false);
  }
  if (quantization_) config = without_member(config, "quantization_config");
  if (rows_ > 0 || !copies_.empty() || quantization_) write_file_atomic(path, config);
}

}  // namespace lorikeet::recipes
