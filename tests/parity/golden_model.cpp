#include "parity/golden_model.h"

#include <ATen/ATen.h>

#include <sstream>
#include <stdexcept>

#include "base/file.h"
#include "io/checkpoint.h"
#include "models/expert_stacks.h"
#include "models/loading.h"
#include "models/registry.h"
#include "ops/dtype.h"
#include "peft/adapter_file.h"
#include "peft/tensor_bytes.h"
#include "precision/policy.h"
#include "support/paths.h"

namespace lorikeet::test {
namespace {

std::vector<std::int32_t> integers(const Json& row) {
  std::vector<std::int32_t> values;
  for (const Json& value : row.array()) values.push_back(static_cast<std::int32_t>(value.integer()));
  return values;
}

std::unique_ptr<nn::LinearFactory> make_factory(const precision::Policy& policy,
                                                peft::LoraAdapters* adapters) {
  if (adapters == nullptr) return std::make_unique<nn::FrozenFactory>(policy);
  return std::make_unique<peft::LoraFactory>(policy, *adapters);
}

}  // namespace

std::filesystem::path golden(const std::string& relative) {
  return source_dir() / "tests/parity/goldens" / relative;
}

std::vector<Json> golden_lines(const std::string& relative) {
  std::vector<Json> rows;
  std::istringstream in(read_file(golden(relative)));
  for (std::string line; std::getline(in, line);) rows.push_back(Json::parse(line, relative));
  return rows;
}

at::Tensor golden_tensor(const std::string& relative, const std::string& name) {
  const auto file = io::SafetensorsFile::open(golden(relative));
  const io::TensorView* view = file.find(name);
  if (view == nullptr) throw std::runtime_error(relative + " has no tensor '" + name + "'");
  at::Tensor tensor = at::empty(view->shape, at::TensorOptions(ops::to_torch(view->dtype)));
  peft::copy_into({view->name, view->dtype, view->shape}, view->bytes, tensor, relative);
  return tensor;
}

data::TokenDataset golden_rows(const std::string& relative) {
  data::TokenRows rows;
  std::int64_t number = 0;
  for (const Json& row : golden_lines(relative)) {
    rows.add(integers(*row.find("input_ids")), integers(*row.find("labels")), number, number + 1);
    ++number;
  }
  return data::TokenDataset(std::move(rows));
}

GoldenModel::GoldenModel(const std::string& base, const std::optional<std::string>& adapter,
                         config::PrecisionPreset preset, const Mistake& mistake) {
  const precision::Policy policy = precision::resolve({.preset = preset});
  Json config = models::read_config_json(golden(base));
  if (mistake.config) mistake.config(config);
  nn::CausalLMSpec spec = models::model_spec(JsonView(config, base));
  if (mistake.spec) mistake.spec(spec);
  if (adapter) {
    peft::LoraConfig lora = peft::load_adapter_config(golden(*adapter));
    if (mistake.lora) mistake.lora(lora);
    adapters_ = std::make_unique<peft::LoraAdapters>(lora, policy, /*seed=*/0);
  }
  model_ = std::make_unique<nn::CausalLM>(spec, *make_factory(policy, adapters_.get()));
  io::Checkpoint checkpoint = io::Checkpoint::open(golden(base));
  models::name_expert_parts(checkpoint, spec.checkpoint_names);
  models::require_complete(models::compare_weights(*model_, checkpoint), checkpoint);
  model_->store().allocate(at::kCPU);
  models::load_weights(*model_, checkpoint);
  if (adapter) {
    adapters_->store().allocate(at::kCPU);
    peft::load_adapter(golden(*adapter), *adapters_);
  }
}

}  // namespace lorikeet::test
