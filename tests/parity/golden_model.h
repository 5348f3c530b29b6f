#pragma once

#include <ATen/core/Tensor.h>

#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/json.h"
#include "config/settings.h"
#include "data/token_dataset.h"
#include "nn/causal_lm.h"
#include "peft/lora.h"

// The goldens that tests/parity/make_model_goldens.py writes, and models made of them.
namespace lorikeet::test {

/// A file or folder of tests/parity/goldens.
std::filesystem::path golden(const std::string& relative);

/// The JSON values of a file of lines.
std::vector<Json> golden_lines(const std::string& relative);

/// A tensor of a safetensors file, in its dtype.
at::Tensor golden_tensor(const std::string& relative, const std::string& name);

/// Rows of {"input_ids", "labels"}.
data::TokenDataset golden_rows(const std::string& relative);

/// What to get wrong on purpose; each may be empty.
struct Mistake {
  std::function<void(Json&)> config;
  std::function<void(nn::CausalLMSpec&)> spec;
  std::function<void(peft::LoraConfig&)> lora;
};

/// A golden checkpoint on the CPU, with the adapter of a PEFT folder where one is given.
class GoldenModel {
 public:
  GoldenModel(const std::string& base, const std::optional<std::string>& adapter,
              config::PrecisionPreset preset, const Mistake& mistake = {});

  nn::CausalLM& model() { return *model_; }
  peft::LoraAdapters& adapters() { return *adapters_; }

 private:
  std::unique_ptr<peft::LoraAdapters> adapters_;
  std::unique_ptr<nn::CausalLM> model_;
};

}  // namespace lorikeet::test
