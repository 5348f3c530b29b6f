#include "peft/adapter_file.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <map>
#include <optional>
#include <set>

#include "base/counted.h"
#include "base/error.h"
#include "base/file.h"
#include "base/hash.h"
#include "base/strings.h"
#include "io/safetensors.h"
#include "io/tensor_digest.h"
#include "peft/adapter_config.h"
#include "peft/adapter_folder.h"
#include "peft/expert_parameters.h"
#include "peft/stacked_factors.h"
#include "peft/tensor_bytes.h"

namespace lorikeet::peft {
namespace {

std::string quoted(std::vector<std::string> names) {
  std::sort(names.begin(), names.end());
  return "[" + join(names, ", ") + "]";
}

// An adapter's tensors by the names that they have in the model, whichever the file has.
class AdapterTensors {
 public:
  AdapterTensors(const std::filesystem::path& folder, const LoraAdapters& adapters)
      : file_(open_adapter_tensors(folder)) {
    const io::CheckpointNames& names = adapters.config().checkpoint_names;
    const std::string prefix = kAdapterPrefix;
    for (const io::TensorView& tensor : file_.tensors()) {
      const bool prefixed = tensor.name.starts_with(prefix);
      const std::string name =
          prefixed ? prefix + names.model_name(tensor.name.substr(prefix.size())) : tensor.name;
      if (!by_name_.emplace(name, &tensor).second) {
        throw Error(escape_control("[" + path().string() + "] has '" + name +
                                   "' under two names, its own and an older one"));
      }
    }
  }

  const std::filesystem::path& path() const { return file_.path(); }
  const io::TensorView* find(const std::string& name) const {
    const auto found = by_name_.find(name);
    return found != by_name_.end() ? found->second : nullptr;
  }
  const std::map<std::string, const io::TensorView*>& all() const { return by_name_; }

 private:
  io::SafetensorsFile file_;
  std::map<std::string, const io::TensorView*> by_name_;
};

// A tensor of the file, which is made of segments.
struct FileTensor {
  enum class Form {
    kOne,
    kTransposed,
    kAppended,  // after each other along `dim`
    kStackedA,  // of experts' (expert_parameters.h)
    kStackedB,
  };
  std::string name;
  std::vector<std::size_t> segments;
  std::vector<std::int64_t> shape;
  Form form = Form::kOne;
  std::int64_t dim = 0;
  bool same_as_before = false;  // the tensor before it, under another name
};

using Form = FileTensor::Form;

// The tensors of adapters on experts' parameters, from each parameter's segments of all experts.
void add_stacks(const LoraAdapters& adapters, std::vector<FileTensor>& tensors) {
  struct Stack {
    std::vector<std::size_t> as, bs;
  };
  std::map<std::string, Stack> stacks;
  for (const auto& module : adapters.modules()) {
    if (!module.slice) continue;
    Stack& stack = stacks[module.slice->parameter];
    stack.as.push_back(module.a);
    stack.bs.push_back(module.b);
  }
  const AdapterStore& store = adapters.store();
  for (const auto& [parameter, stack] : stacks) {
    const std::string wrapper = kAdapterPrefix + wrapper_name(parameter, [&](const std::string& other) {
                                  return stacks.contains(other);
                                });
    const auto count = static_cast<std::int64_t>(stack.as.size());
    std::vector<std::int64_t> a = store.segment(stack.as[0]).shape, b = store.segment(stack.bs[0]).shape;
    a[0] *= count;
    b[1] *= count;
    tensors.push_back({wrapper + ".lora_A.weight", stack.as, a, Form::kStackedA});
    tensors.push_back({wrapper + ".lora_B.weight", stack.bs, b, Form::kStackedB});
  }
}

std::vector<FileTensor> file_tensors(const LoraAdapters& adapters) {
  const AdapterStore& store = adapters.store();
  std::vector<FileTensor> tensors;
  const auto add = [&](std::size_t segment, const std::optional<std::size_t>& behind, std::size_t dim) {
    FileTensor tensor{kAdapterPrefix + store.segment(segment).name, {segment}, store.segment(segment).shape};
    if (behind) {
      tensor.form = Form::kAppended;
      tensor.dim = static_cast<std::int64_t>(dim);
      tensor.segments.push_back(*behind);
      tensor.shape[dim] += store.segment(*behind).shape[dim];
    }
    tensors.push_back(std::move(tensor));
  };
  const auto transpose = [](FileTensor& tensor) {
    tensor.form = Form::kTransposed;
    std::reverse(tensor.shape.begin(), tensor.shape.end());
  };
  for (const auto& module : adapters.modules()) {
    if (module.slice) continue;
    add(module.a, module.start_a, 0);
    if (module.is_embedding()) transpose(tensors.back());
    add(module.b, module.start_b, 1);
    if (module.is_embedding()) transpose(tensors.back());
    if (module.magnitude) add(*module.magnitude, std::nullopt, 0);
  }
  add_stacks(adapters, tensors);
  for (const auto& table : adapters.tables()) {
    add(table.segment, std::nullopt, 0);
    if (table.tied_head.empty()) continue;
    add(table.segment, std::nullopt, 0);  // PEFT's files have it under both names
    tensors.back().name = kAdapterPrefix + table.tied_head + ".weight";
    tensors.back().same_as_before = true;
  }
  return tensors;
}

at::Tensor in_file(const AdapterStore& store, const FileTensor& tensor) {
  std::vector<at::Tensor> values;
  values.reserve(tensor.segments.size());
  for (const std::size_t segment : tensor.segments) values.push_back(store.value(segment));
  switch (tensor.form) {
    case Form::kOne: return values[0];
    case Form::kTransposed: return values[0].t().contiguous();
    case Form::kAppended: return at::cat(values, tensor.dim);
    case Form::kStackedA: return stacked_a(values);
    case Form::kStackedB: return stacked_b(values);
  }
  return {};
}

// What one of a tensor's segments has of it.
at::Tensor part_of(const at::Tensor& whole, const FileTensor& tensor, std::int64_t index) {
  const auto count = static_cast<std::int64_t>(tensor.segments.size());
  switch (tensor.form) {
    case Form::kOne: return whole;
    case Form::kTransposed: return whole.t();
    case Form::kAppended: return whole.chunk(count, tensor.dim).at(static_cast<std::size_t>(index));
    case Form::kStackedA: return expert_a(whole, index, count);
    case Form::kStackedB: return expert_b(whole, index, count);
  }
  return {};
}

void from_file(const at::Tensor& whole, const FileTensor& tensor, AdapterStore& store) {
  for (std::size_t i = 0; i < tensor.segments.size(); ++i)
    store.value(tensor.segments[i]).copy_(part_of(whole, tensor, static_cast<std::int64_t>(i)));
}

// PEFT writes the base's own table beside an adapter of the embedding or the head.
std::vector<std::string> base_tables(const LoraAdapters& adapters) {
  std::vector<std::string> names;
  for (const auto& module : adapters.modules()) {
    if (module.is_table()) names.push_back(kAdapterPrefix + module.name + ".base_layer.weight");
  }
  return names;
}

void require_fits(const AdapterTensors& file, const std::vector<FileTensor>& expected,
                  const std::vector<std::string>& also_allowed) {
  std::set<std::string> wanted(also_allowed.begin(), also_allowed.end());
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
  for (const auto& [name, tensor] : file.all()) {
    if (!wanted.contains(name)) unexpected.push_back(tensor->name);
  }
  if (missing.empty() && unexpected.empty() && mismatched.empty()) return;
  std::vector<std::string> parts;
  const auto count = [&](const std::vector<std::string>& names, const char* one, const char* many) {
    if (!names.empty()) parts.push_back(counted(names.size(), one, many) + " (first: " + names[0] + ")");
  };
  count(missing, "tensor is missing", "tensors are missing");
  count(unexpected, "tensor is unexpected", "tensors are unexpected");
  count(mismatched, "tensor has another shape", "tensors have another shape");
  throw Error(escape_control("[" + file.path().string() +
                             "] doesn't fit this model and the modules of lora.target_modules and "
                             "lora.target_parameters: " +
                             join(parts, ", ")));
}

// The tables that are trained, by name; both ends where they share one.
LoraConfig written_config(const LoraAdapters& adapters) {
  LoraConfig config = as_plain(adapters.config());
  // What a shared expert's modules are called, "down_proj", experts' without adapters are called too.
  if (config.targets_all_linear() && adapters.shares_last_parts()) config.write_whole_names = true;
  if (adapters.config().starts_from_base) {
    // Of the embedding nothing is subtracted: it keeps its rank. The first pattern that matches counts.
    const TargetRules rules(adapters.config());
    for (const auto& module : adapters.modules()) {
      if (module.start_a) continue;
      config.rank_pattern.emplace(config.rank_pattern.begin(), module.name, rules.rank(module.name));
      config.alpha_pattern.emplace(config.alpha_pattern.begin(), module.name, rules.alpha(module.name));
    }
  }
  config.modules_to_save.clear();
  config.ensure_weight_tying = false;
  for (const auto& table : adapters.tables()) {
    config.modules_to_save.push_back(last_part(table.name));
    if (table.tied_head.empty()) continue;
    config.modules_to_save.push_back(last_part(table.tied_head));
    config.ensure_weight_tying = true;
  }
  return config;
}

}  // namespace

void require_adapter_fits(const std::filesystem::path& folder, const LoraAdapters& adapters) {
  require_fits(AdapterTensors(folder, adapters), file_tensors(adapters), base_tables(adapters));
}

void save_adapter(const std::filesystem::path& folder, const LoraAdapters& adapters,
                  const std::string& base_model) {
  const AdapterStore& store = adapters.store();
  TensorBytes tensors;
  for (const FileTensor& tensor : file_tensors(adapters))
    tensors.add(tensor.name, in_file(store, tensor), store.segment(tensor.segments[0]).order);
  io::write_safetensors(folder / kAdapterTensors, tensors.entries(), {{"format", "pt"}});

  std::vector<std::string> modules;
  std::set<std::string> parameters;
  for (const auto& module : adapters.modules()) {
    if (module.slice) {
      parameters.insert(module.slice->parameter);
    } else {
      modules.push_back(module.name);
    }
  }
  write_file_atomic(folder / kAdapterConfig,
                    adapter_config_json(written_config(adapters), base_model, modules,
                                        {parameters.begin(), parameters.end()})
                            .dump(2) +
                        "\n");
}

LoraConfig load_adapter_config(const std::filesystem::path& folder) {
  const Json json = read_adapter_json(folder);
  LoraConfig config = read_adapter_config(JsonView(json, (folder / kAdapterConfig).string()));
  std::optional<io::SafetensorsFile> file;
  try {
    file.emplace(open_adapter_tensors(folder));
  } catch (const Error&) {
    // Who loads the tensors says so, behind what is wrong with the settings.
    if (!config.modules_to_save.empty()) throw;
    return config;
  }
  const TargetRules rules(config);
  for (const io::TensorView& tensor : file->tensors()) {
    const std::size_t begin = std::string_view(kAdapterPrefix).size(), end = tensor.name.find(".lora_A.");
    if (end != std::string::npos && tensor.name.starts_with(kAdapterPrefix)) {
      std::string module = tensor.name.substr(begin, end - begin);
      const bool wraps_parameter =
          wrapped_parameter(module, [&](const std::string& p) { return rules.targets(p); }).has_value();
      if (!wraps_parameter) config.modules_in_file.insert(std::move(module));
    }
    for (const std::string& name : config.modules_to_save) {
      if (tensor.name.ends_with("." + name + ".weight") && tensor.shape.size() == 2)
        config.table_rows = tensor.shape[0];
    }
  }
  return config;
}

void require_same_base(const std::filesystem::path& folder, const LoraAdapters& adapters,
                       const nn::WeightStore& base) {
  const AdapterTensors file(folder, adapters);
  for (const auto& module : adapters.modules()) {
    const io::TensorView* tensor = file.find(kAdapterPrefix + module.name + ".base_layer.weight");
    if (!module.is_table() || tensor == nullptr) continue;
    base.expect({module.weight.unit});
    const nn::UnitLoan loan = base.borrow(*module.weight.unit);
    const at::Tensor own = module.weight.of(loan).dense(adapters.store().values().scalar_type());
    const at::Tensor theirs = at::empty(tensor->shape, own.options());
    copy_into({tensor->name, tensor->dtype, tensor->shape}, tensor->bytes, theirs, file.path().string());
    // Either may have been rounded to 16 bits.
    if (theirs.sizes() != own.sizes() || !at::allclose(theirs, own, /*rtol=*/1e-2, /*atol=*/1e-6)) {
      throw Error(
          escape_control("[" + file.path().string() + "] " + tensor->name +
                         " is another table than this base's: the adapter belongs to another base, or "
                         "to one whose embedding was resized, which is read only as modules_to_save"));
    }
  }
}

void load_adapter(const std::filesystem::path& folder, LoraAdapters& adapters) {
  AdapterStore& store = adapters.store();
  const AdapterTensors file(folder, adapters);
  const std::vector<FileTensor> tensors = file_tensors(adapters);
  require_fits(file, tensors, base_tables(adapters));
  const at::Tensor before = store.all_values().clone();
  try {
    for (const FileTensor& own : tensors) {
      const io::TensorView* tensor = file.find(own.name);
      const at::Tensor first = store.value(own.segments[0]);
      const bool direct = own.form == Form::kOne && !own.same_as_before;
      const at::Tensor whole = direct ? first : at::empty(own.shape, first.options());
      copy_into({tensor->name, tensor->dtype, tensor->shape}, tensor->bytes, whole, file.path().string(),
                store.segment(own.segments[0]).order);
      require_finite(whole, tensor->name, file.path());
      if (own.same_as_before && !at::equal(whole, store.value(own.segments[0]))) {
        throw Error(
            escape_control("[" + file.path().string() + "] " + own.name +
                           " is another table than the embedding's, though ensure_weight_tying says that "
                           "they are one"));
      }
      if (!direct) from_file(whole, own, store);
    }
  } catch (...) {
    store.all_values().copy_(before);
    throw;
  }
  store.refresh_compute();
}

std::string adapter_fingerprint(const std::filesystem::path& folder, const LoraAdapters& adapters) {
  const TargetRules rules(load_adapter_config(folder));
  const AdapterTensors file(folder, adapters);
  Sha256 hash;
  hash.field("lorikeet adapter 1");
  for (const auto& module : adapters.modules())
    hash.field(module.name).field(Json(rules.scale(module.target())).dump());
  for (const auto& [name, tensor] : file.all()) hash.field(name).field(io::digest_of(*tensor).hex());
  return hash.hex();
}

void require_same_settings(const LoraConfig& wanted, const LoraConfig& found, const std::string& where) {
  std::vector<std::string> differences;
  const auto differ = [&](const std::string& key, const std::string& ours, const std::string& theirs) {
    differences.push_back(key + " is " + ours + " in the config and " + theirs + " in '" + where + "'");
  };
  const auto number = [](double value) { return Json(value).dump(); };
  if (wanted.rank != found.rank) differ("lora.rank", std::to_string(wanted.rank), std::to_string(found.rank));
  if (wanted.alpha != found.alpha) differ("lora.alpha", number(wanted.alpha), number(found.alpha));
  const auto same_flag = [&](const char* key, bool ours, bool theirs) {
    if (ours != theirs) differ(key, ours ? "true" : "false", theirs ? "true" : "false");
  };
  same_flag("lora.use_rslora", wanted.use_rslora, found.use_rslora);
  same_flag("lora.use_dora", wanted.use_dora, found.use_dora);
  // What is chosen otherwise is written out as names in adapter files; load_adapter compares the modules it
  // stands for.
  if (wanted.targets_by_names() && found.targets_by_names() &&
      quoted(wanted.target_modules) != quoted(found.target_modules)) {
    differ("lora.target_modules", quoted(wanted.target_modules), quoted(found.target_modules));
  }
  if (quoted(wanted.target_parameters) != quoted(found.target_parameters)) {
    differ("lora.target_parameters", quoted(wanted.target_parameters), quoted(found.target_parameters));
  }
  if (!differences.empty()) throw Error("[lora.init] " + join(differences, "; ") + "; make them agree");
}

void require_same_scales(const LoraAdapters& adapters, const LoraConfig& found, const std::string& where) {
  const TargetRules ours(adapters.config()), theirs(found);
  for (const auto& module : adapters.modules()) {
    const std::string& name = module.target();
    if (ours.rank(name) == theirs.rank(name) && ours.alpha(name) == theirs.alpha(name)) continue;
    const auto text = [&](const TargetRules& rules) {
      return "rank " + std::to_string(rules.rank(name)) + " and alpha " + Json(rules.alpha(name)).dump();
    };
    throw Error("[lora.init] '" + name + "' has " + text(ours) + " in the config and " + text(theirs) +
                " in '" + where + "'; make lora.rank_pattern and lora.alpha_pattern agree with it");
  }
}

}  // namespace lorikeet::peft
