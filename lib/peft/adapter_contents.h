#pragma once

#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "base/dtype.h"
#include "base/json.h"
#include "nn/row_order.h"
#include "peft/lora_config.h"
#include "peft/low_rank_update.h"

// PEFT adapter folders read and written without their base model: names and shapes are the file's own.
namespace lorikeet::peft {

/// One adapted module. Rows are in the file's order, which is the checkpoint's.
struct AdapterModule {
  double alpha = 0;
  LowRankUpdate update;  ///< its scale is what alpha, the rank and rsLoRA make
  at::Tensor magnitude;  ///< DoRA's, fp64 [out]; undefined otherwise
  /// An embedding's, as a linear module of as many outputs as the table has rows: A is the file's
  /// lora_embedding_B transposed, B its lora_embedding_A transposed.
  bool is_embedding = false;
  /// Of an expert's slice of a parameter: the parameter's rows of an expert are its module's.
  std::optional<nn::ExpertSlice> slice = {};

  /// What its rank and alpha go by: the parameter's name, or the module's own, `name`.
  const std::string& target(const std::string& name) const { return slice ? slice->parameter : name; }
};

struct AdapterContents {
  LoraConfig config;
  std::string base_model;  ///< base_model_name_or_path, empty where the file has none
  DType dtype = {};        ///< the widest of the file's tensors, base_tables apart
  /// By the checkpoint's name, without ".weight"; an expert's slice by its own (nn::ExpertSlice).
  std::map<std::string, AdapterModule> modules;

  /// Tensors of modules_to_save, fp64, by the checkpoint's name: trained copies that replace the base's.
  std::map<std::string, at::Tensor> saved = {};
  /// The base's own weights of embedding and head, by their modules' names and in their own dtypes: PEFT
  /// writes them beside adapters on these. They are handed on and take part in nothing.
  std::map<std::string, at::Tensor> base_tables = {};

  /// Of the modules, without slices.
  std::vector<std::string> names() const;
  /// The parameters that have slices.
  std::vector<std::string> parameters() const;
};

/// adapter_config.json as it is written: with the rank and the alpha that most modules have, and the others'
/// by whole names.
Json written_json(const AdapterContents& contents);

/// The narrowest of fp64, fp32, fp16 and bf16 that holds every value of both.
DType widest(DType a, DType b);

/// Reads adapter_config.json and adapter_model.safetensors. Throws Error, naming the tensor, for anything but
/// whole pairs of lora_A and lora_B (lora_embedding_A and lora_embedding_B), of modules or of experts'
/// parameters, DoRA's magnitudes and what modules_to_save names; for ranks and targets that contradict the
/// config, and for values that are NaN or infinite (kRunFailed); and what read_adapter_config refuses.
AdapterContents read_adapter_contents(const std::filesystem::path& folder);

/// Writes both files into an existing folder, in the contents' dtype. All slices of a parameter have one rank
/// and one scale. Rank and alpha are the modules' own: of the config only dropout, targets, modules_to_save
/// and the kind (rsLoRA, DoRA) are taken. Throws Error for an alpha or a rank that no adapter_config.json may
/// have, and for values beyond the dtype's range (kRunFailed).
void write_adapter_contents(const std::filesystem::path& folder, const AdapterContents& contents);

}  // namespace lorikeet::peft
