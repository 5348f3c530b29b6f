#include "peft/adapter_contents.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <array>
#include <optional>
#include <set>
#include <string_view>

#include "base/error.h"
#include "base/file.h"
#include "base/strings.h"
#include "io/safetensors.h"
#include "ops/dtype.h"
#include "peft/adapter_config.h"
#include "peft/adapter_folder.h"
#include "peft/expert_parameters.h"
#include "peft/stacked_factors.h"
#include "peft/target_rules.h"
#include "peft/tensor_bytes.h"

namespace lorikeet::peft {
namespace {

constexpr std::string_view kPrefix = kAdapterPrefix;
constexpr std::string_view kA = ".lora_A.weight", kB = ".lora_B.weight", kEmbeddingA = ".lora_embedding_A",
                           kEmbeddingB = ".lora_embedding_B", kMagnitude = ".lora_magnitude_vector",
                           kBaseTable = ".base_layer.weight";

[[noreturn]] void fail(const io::SafetensorsFile& file, const std::string& what) {
  throw Error(escape_control("[" + file.path().string() + "] " + what));
}

at::Tensor read_tensor(const io::SafetensorsFile& file, const io::TensorView& tensor,
                       DType dtype = DType::kF64) {
  const at::Tensor value = at::empty(tensor.shape, ops::to_torch(dtype));
  copy_into({tensor.name, tensor.dtype, tensor.shape}, tensor.bytes, value, file.path().string());
  require_finite(value, tensor.name, file.path());
  return value;
}

// The module's name and which of its tensors this is.
struct Place {
  std::string module;
  std::string_view part;
};

Place place_of(const io::SafetensorsFile& file, const io::TensorView& tensor) {
  const std::string_view name = tensor.name;
  for (const std::string_view part : {kA, kB, kEmbeddingA, kEmbeddingB, kMagnitude, kBaseTable}) {
    if (!name.starts_with(kPrefix) || !name.ends_with(part) || name.size() <= kPrefix.size() + part.size())
      continue;
    std::string module(name.substr(kPrefix.size(), name.size() - kPrefix.size() - part.size()));
    // They become regular expressions in rank_pattern.
    if (is_pattern({module})) break;
    if (tensor.shape.size() != (part == kMagnitude ? 1 : 2))
      fail(file, "tensor '" + tensor.name + "' has shape " + io::shape_text(tensor.shape) +
                     ", which isn't a linear module's or an embedding's: only their adapters can be read "
                     "here");
    return {std::move(module), part};
  }
  fail(file,
       "tensor '" + tensor.name +
           "' is no part of an adapter of a linear module or an embedding (lora_A, lora_B, "
           "lora_embedding_A, lora_embedding_B, lora_magnitude_vector), and modules_to_save doesn't name "
           "its module");
}

// The name of a tensor of a module that the config saves, without PEFT's prefix.
std::optional<std::string> saved_name(const io::TensorView& tensor, const TargetRules& rules) {
  if (!tensor.name.starts_with(kPrefix)) return std::nullopt;
  std::string name = tensor.name.substr(kPrefix.size());
  const std::size_t dot = name.rfind('.');
  if (dot == std::string::npos || !rules.saves(name.substr(0, dot))) return std::nullopt;
  return name;
}

void take(const io::SafetensorsFile& file, const io::TensorView& tensor, const TargetRules& rules,
          AdapterContents& contents) {
  if (auto name = saved_name(tensor, rules)) {
    contents.saved[std::move(*name)] = read_tensor(file, tensor);
    contents.dtype = widest(contents.dtype, tensor.dtype);
    return;
  }
  const Place place = place_of(file, tensor);
  if (place.part == kBaseTable) {
    contents.base_tables[place.module] = read_tensor(file, tensor, tensor.dtype);
    return;
  }
  AdapterModule& module = contents.modules[place.module];
  const at::Tensor value = read_tensor(file, tensor);
  const bool of_embedding = place.part == kEmbeddingA || place.part == kEmbeddingB;
  at::Tensor& own = place.part == kA || place.part == kEmbeddingB   ? module.update.a
                    : place.part == kB || place.part == kEmbeddingA ? module.update.b
                                                                    : module.magnitude;
  if (own.defined())
    fail(file, "module '" + place.module + "' has the factors of a linear module and of an embedding");
  own = of_embedding ? value.t().contiguous() : value;
  module.is_embedding = module.is_embedding || of_embedding;
  contents.dtype = widest(contents.dtype, tensor.dtype);
}

void require_whole(const io::SafetensorsFile& file, const std::string& name, const AdapterModule& module,
                   const LoraConfig& config, const TargetRules& rules) {
  const LowRankUpdate& update = module.update;
  const auto require = [&](bool holds, const std::string& what) {
    if (!holds) fail(file, "module '" + name + "' " + what);
  };
  const bool embedding = module.is_embedding;
  require(update.a.defined(), embedding ? "has no lora_embedding_B" : "has no lora_A");
  require(update.b.defined(), embedding ? "has no lora_embedding_A" : "has no lora_B");
  require(update.a.size(0) == update.b.size(1), "has a lora_A of rank " + std::to_string(update.a.size(0)) +
                                                    " and a lora_B of rank " +
                                                    std::to_string(update.b.size(1)));
  require(update.a.numel() > 0 && update.b.numel() > 0, "has a lora_A or lora_B without elements");
  const std::int64_t rank = rules.rank(module.target(name));
  require(module.slice || rules.matches(name, /*by_name_only=*/embedding),
          "is no target of its adapter_config.json");
  require(update.rank() == rank, "has rank " + std::to_string(update.rank()) +
                                     ", its adapter_config.json says " + std::to_string(rank));
  require(module.magnitude.defined() == config.use_dora,
          config.use_dora ? "has no lora_magnitude_vector, though use_dora is set"
                          : "has a lora_magnitude_vector, though use_dora isn't set");
  // An embedding's magnitudes are those of the table's columns.
  require(!config.use_dora ||
              module.magnitude.size(0) == (embedding ? update.in_features() : update.out_features()),
          embedding ? "has a lora_magnitude_vector of another length than lora_embedding_B"
                    : "has a lora_magnitude_vector of another length than lora_B");
}

// Puts a module for each expert in place of those on experts' parameters.
void take_apart(const io::SafetensorsFile& file, const TargetRules& rules, AdapterContents& contents) {
  const auto adapted = [&](const std::string& parameter) { return rules.targets(parameter); };
  std::map<std::string, AdapterModule> modules;
  for (auto& [name, whole] : contents.modules) {
    const auto parameter = wrapped_parameter(name, adapted);
    if (!parameter) {
      modules.emplace(name, std::move(whole));
      continue;
    }
    const at::Tensor &a = whole.update.a, &b = whole.update.b;
    const std::int64_t rank = rules.rank(*parameter), rows = a.defined() ? a.size(0) : 0;
    if (rows == 0 || rows % rank != 0 || !b.defined() || b.size(1) != rows || whole.is_embedding ||
        whole.magnitude.defined()) {
      fail(file, "'" + *parameter + "' has no lora_A [experts * " + std::to_string(rank) +
                     ", in] with a lora_B [out, " + std::to_string(rank) + " * experts]");
    }
    const std::int64_t count = rows / rank;
    for (std::int64_t e = 0; e < count; ++e) {
      const nn::ExpertSlice slice{.parameter = *parameter, .expert = e, .count = count};
      modules[slice.name()] = {
          .update = {.a = expert_a(a, e, count).contiguous(), .b = expert_b(b, e, count).contiguous()},
          .magnitude = {},
          .slice = slice};
    }
  }
  contents.modules = std::move(modules);
}

// The factors of a parameter, of all experts.
struct Stack {
  std::vector<at::Tensor> as, bs;
};

std::map<std::string, Stack> stacks_of(const AdapterContents& contents) {
  std::map<std::string, Stack> stacks;
  for (const std::string& parameter : contents.parameters()) {
    nn::ExpertSlice slice{.parameter = parameter};
    for (auto found = contents.modules.find(slice.name()); found != contents.modules.end();
         found = contents.modules.find(slice.name())) {
      stacks[parameter].as.push_back(found->second.update.a);
      stacks[parameter].bs.push_back(found->second.update.b);
      ++slice.expert;
    }
  }
  return stacks;
}

// What most modules have.
template <typename F>
auto most_common(const AdapterContents& contents, F value) {
  std::map<decltype(value(contents.modules.begin()->second)), std::size_t> counts;
  for (const auto& [name, module] : contents.modules) ++counts[value(module)];
  return std::max_element(counts.begin(), counts.end(),
                          [](const auto& x, const auto& y) { return x.second < y.second; })
      ->first;
}

LoraConfig written_config(const AdapterContents& contents) {
  LoraConfig config = contents.config;
  config.rank_pattern.clear();
  config.alpha_pattern.clear();
  config.rank = most_common(contents, [](const AdapterModule& m) { return m.update.rank(); });
  config.alpha = most_common(contents, [](const AdapterModule& m) { return m.alpha; });
  for (const auto& [name, module] : contents.modules) {
    if (module.slice && module.slice->expert != 0) continue;
    const std::string& target = module.target(name);
    if (module.update.rank() != config.rank) config.rank_pattern.emplace_back(target, module.update.rank());
    if (module.alpha != config.alpha) config.alpha_pattern.emplace_back(target, module.alpha);
  }
  return config;
}

at::Tensor stored(const at::Tensor& value, DType dtype, const std::string& name) {
  at::Tensor stored = value.to(ops::to_torch(dtype));
  if (at::isfinite(stored).all().item<bool>()) return stored;
  throw Error(
      "[adapters] " + name + " would get values beyond the range of " + std::string(dtype_name(dtype)),
      ErrorKind::kRunFailed);
}

}  // namespace

std::vector<std::string> AdapterContents::names() const {
  std::vector<std::string> names;
  names.reserve(modules.size());
  for (const auto& [name, module] : modules) {
    if (!module.slice) names.push_back(name);
  }
  return names;
}

std::vector<std::string> AdapterContents::parameters() const {
  std::set<std::string> names;
  for (const auto& [name, module] : modules) {
    if (module.slice) names.insert(module.slice->parameter);
  }
  return {names.begin(), names.end()};
}

Json written_json(const AdapterContents& contents) {
  return adapter_config_json(written_config(contents), contents.base_model, contents.names(),
                             contents.parameters());
}

DType widest(DType a, DType b) {
  if (a == b) return a;
  return a == DType::kF64 || b == DType::kF64 ? DType::kF64 : DType::kF32;
}

AdapterContents read_adapter_contents(const std::filesystem::path& folder) {
  const Json json = read_adapter_json(folder);
  const JsonView view(json, (folder / kAdapterConfig).string());
  AdapterContents contents{.config = read_adapter_config(view),
                           .base_model = view.get_string("base_model_name_or_path", "")};

  const auto file = open_adapter_tensors(folder);
  if (file.tensors().empty()) fail(file, "holds no tensors");
  const TargetRules rules(contents.config);
  const auto first = std::find_if(file.tensors().begin(), file.tensors().end(),
                                  [](const io::TensorView& one) { return !one.name.ends_with(kBaseTable); });
  if (first == file.tensors().end()) fail(file, "holds no tensors of an adapter");
  contents.dtype = first->dtype;
  for (const io::TensorView& tensor : file.tensors()) take(file, tensor, rules, contents);
  take_apart(file, rules, contents);
  if (contents.modules.empty())
    fail(file, "holds no lora_A and lora_B: modules_to_save alone are no adapter");
  for (auto& [name, module] : contents.modules) {
    require_whole(file, name, module, contents.config, rules);
    module.alpha = rules.alpha(module.target(name));
    module.update.scale = rules.scale(module.target(name));
  }
  return contents;
}

void write_adapter_contents(const std::filesystem::path& folder, const AdapterContents& contents) {
  TensorBytes tensors;
  const auto add = [&](const std::string& module, std::string_view part, const at::Tensor& value) {
    const std::string name = std::string(kPrefix) + module + std::string(part);
    tensors.add(name, stored(value, contents.dtype, name));
  };
  const auto stacks = stacks_of(contents);
  for (const auto& [parameter, stack] : stacks) {
    const std::string wrapper =
        wrapper_name(parameter, [&](const std::string& other) { return stacks.contains(other); });
    add(wrapper, kA, stacked_a(stack.as));
    add(wrapper, kB, stacked_b(stack.bs));
  }
  for (const auto& [name, module] : contents.modules) {
    if (module.slice) continue;
    if (module.is_embedding) {
      add(name, kEmbeddingA, module.update.b.t());
      add(name, kEmbeddingB, module.update.a.t());
    } else {
      add(name, kA, module.update.a);
      add(name, kB, module.update.b);
    }
    if (module.magnitude.defined()) add(name, kMagnitude, module.magnitude);
  }
  for (const auto& [name, value] : contents.saved) add(name, "", value);
  for (const auto& [name, table] : contents.base_tables)
    tensors.add(std::string(kPrefix) + name + std::string(kBaseTable), table);
  const std::filesystem::path path = folder / kAdapterConfig;
  const Json config = written_json(contents);
  read_adapter_config(JsonView(config, path.filename().string()));  // throws for what no file may have
  io::write_safetensors(folder / kAdapterTensors, tensors.entries(), {{"format", "pt"}});
  write_file_atomic(path, config.dump(2) + "\n");
}

}  // namespace lorikeet::peft
