#include "peft/adapter_file.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <optional>
#include <set>

#include "base/error.h"
#include "base/file.h"
#include "base/strings.h"
#include "io/safetensors.h"
#include "peft/adapter_config.h"
#include "peft/adapter_folder.h"
#include "peft/tensor_bytes.h"

namespace lorikeet::peft {
namespace {

std::string quoted(std::vector<std::string> names) {
  std::sort(names.begin(), names.end());
  return "[" + join(names, ", ") + "]";
}

// A tensor of the file: one segment, or two after each other along `dim`.
struct FileTensor {
  std::string name;
  std::vector<std::size_t> segments;
  std::int64_t dim = 0;
  std::vector<std::int64_t> shape;
};

std::vector<FileTensor> file_tensors(const LoraAdapters& adapters) {
  const AdapterStore& store = adapters.store();
  std::vector<FileTensor> tensors;
  const auto add = [&](std::size_t segment, const std::optional<std::size_t>& behind, std::size_t dim) {
    FileTensor tensor{kAdapterPrefix + store.segment(segment).name,
                      {segment},
                      static_cast<std::int64_t>(dim),
                      store.segment(segment).shape};
    if (behind) {
      tensor.segments.push_back(*behind);
      tensor.shape[dim] += store.segment(*behind).shape[dim];
    }
    tensors.push_back(std::move(tensor));
  };
  for (const auto& module : adapters.modules()) {
    add(module.a, module.start_a, 0);
    add(module.b, module.start_b, 1);
    if (module.magnitude) add(*module.magnitude, std::nullopt, 0);
  }
  return tensors;
}

at::Tensor joined(const AdapterStore& store, const FileTensor& tensor) {
  if (tensor.segments.size() == 1) return store.value(tensor.segments[0]);
  return at::cat({store.value(tensor.segments[0]), store.value(tensor.segments[1])}, tensor.dim);
}

void require_fits(const io::SafetensorsFile& file, const std::vector<FileTensor>& expected) {
  std::set<std::string> wanted;
  std::vector<std::string> missing, unexpected, mismatched;
  for (const FileTensor& own : expected) {
    const io::TensorView* tensor = file.find(own.name);
    wanted.insert(own.name);
    if (tensor == nullptr) {
      missing.push_back(own.name);
    } else if (tensor->shape != own.shape) {
      mismatched.push_back(own.name + ": expected shape " + io::shape_text(own.shape) + ", got " +
                           io::shape_text(tensor->shape));
    }
  }
  for (const io::TensorView& tensor : file.tensors()) {
    if (!wanted.contains(tensor.name)) unexpected.push_back(tensor.name);
  }
  if (missing.empty() && unexpected.empty() && mismatched.empty()) return;
  const auto count = [](const std::vector<std::string>& names, const char* what) {
    return std::to_string(names.size()) + what + (names.empty() ? "" : " (first: " + names[0] + ")");
  };
  throw Error(escape_control(
      "[" + file.path().string() +
      "] doesn't fit this model and its lora settings: " + count(missing, " tensors are missing") + ", " +
      count(unexpected, " are unexpected") + ", " + count(mismatched, " have another shape")));
}

}  // namespace

void require_adapter_fits(const std::filesystem::path& folder, const LoraAdapters& adapters) {
  require_fits(io::SafetensorsFile::open(folder / kAdapterTensors), file_tensors(adapters));
}

void save_adapter(const std::filesystem::path& folder, const LoraAdapters& adapters,
                  const std::string& base_model) {
  const AdapterStore& store = adapters.store();
  TensorBytes tensors;
  for (const FileTensor& tensor : file_tensors(adapters))
    tensors.add(tensor.name, joined(store, tensor), store.segment(tensor.segments[0]).order);
  io::write_safetensors(folder / kAdapterTensors, tensors.entries(), {{"format", "pt"}});

  std::vector<std::string> modules;
  for (const auto& module : adapters.modules()) modules.push_back(module.name);
  write_file_atomic(folder / kAdapterConfig,
                    adapter_config_json(as_plain(adapters.config()), base_model, modules).dump(2) + "\n");
}

LoraConfig load_adapter_config(const std::filesystem::path& folder) {
  const Json json = read_adapter_json(folder);
  return read_adapter_config(JsonView(json, (folder / kAdapterConfig).string()));
}

void load_adapter(const std::filesystem::path& folder, LoraAdapters& adapters) {
  AdapterStore& store = adapters.store();
  const auto file = io::SafetensorsFile::open(folder / kAdapterTensors);
  const std::vector<FileTensor> tensors = file_tensors(adapters);
  require_fits(file, tensors);
  const at::Tensor before = store.all_values().clone();
  try {
    for (const FileTensor& own : tensors) {
      const io::TensorView* tensor = file.find(own.name);
      const at::Tensor first = store.value(own.segments[0]);
      const at::Tensor whole = own.segments.size() == 1 ? first : at::empty(own.shape, first.options());
      copy_into({tensor->name, tensor->dtype, tensor->shape}, tensor->bytes, whole, file.path().string(),
                store.segment(own.segments[0]).order);
      require_finite(whole, tensor->name, file.path());
      if (own.segments.size() == 1) continue;
      const std::int64_t half = first.size(own.dim);
      first.copy_(whole.narrow(own.dim, 0, half));
      store.value(own.segments[1]).copy_(whole.narrow(own.dim, half, half));
    }
  } catch (...) {
    store.all_values().copy_(before);
    throw;
  }
  store.refresh_compute();
}

void require_same_settings(const LoraConfig& wanted, const LoraConfig& found, const std::string& where) {
  const auto fail = [&](const std::string& key, const std::string& ours, const std::string& theirs) {
    throw Error("[lora.init] " + key + " is " + ours + " in the config and " + theirs + " in '" + where +
                "'; make them agree");
  };
  const auto number = [](double value) { return Json(value).dump(); };
  if (wanted.rank != found.rank) fail("lora.rank", std::to_string(wanted.rank), std::to_string(found.rank));
  if (wanted.alpha != found.alpha) fail("lora.alpha", number(wanted.alpha), number(found.alpha));
  const auto same_flag = [&](const char* key, bool ours, bool theirs) {
    if (ours != theirs) fail(key, ours ? "true" : "false", theirs ? "true" : "false");
  };
  same_flag("lora.use_rslora", wanted.use_rslora, found.use_rslora);
  same_flag("lora.use_dora", wanted.use_dora, found.use_dora);
  // What is chosen otherwise is written out as names in adapter files; load_adapter compares the modules it
  // stands for.
  if (wanted.targets_by_names() && found.targets_by_names() &&
      quoted(wanted.target_modules) != quoted(found.target_modules)) {
    fail("lora.target_modules", quoted(wanted.target_modules), quoted(found.target_modules));
  }
}

void require_same_scales(const LoraAdapters& adapters, const LoraConfig& found, const std::string& where) {
  const TargetRules ours(adapters.config()), theirs(found);
  for (const auto& module : adapters.modules()) {
    if (ours.rank(module.name) == theirs.rank(module.name) &&
        ours.alpha(module.name) == theirs.alpha(module.name))
      continue;
    const auto text = [&](const TargetRules& rules) {
      return "rank " + std::to_string(rules.rank(module.name)) + " and alpha " +
             Json(rules.alpha(module.name)).dump();
    };
    throw Error("[lora.init] '" + module.name + "' has " + text(ours) + " in the config and " + text(theirs) +
                " in '" + where + "'; make lora.rank_pattern and lora.alpha_pattern agree with it");
  }
}

}  // namespace lorikeet::peft
