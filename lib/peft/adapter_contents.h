#pragma once

#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include "base/dtype.h"
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
};

struct AdapterContents {
  LoraConfig config;
  std::string base_model;                        ///< base_model_name_or_path, empty where the file has none
  DType dtype = {};                              ///< the widest of the file's tensors, base_tables apart
  std::map<std::string, AdapterModule> modules;  ///< by the checkpoint's name, without ".weight"

  /// Tensors of modules_to_save, fp64, by the checkpoint's name: trained copies that replace the base's.
  std::map<std::string, at::Tensor> saved = {};
  /// The base's own weights of embedding and head, by their modules' names and in their own dtypes: PEFT
  /// writes them beside adapters on these. They are handed on and take part in nothing.
  std::map<std::string, at::Tensor> base_tables = {};

  std::vector<std::string> names() const;
};

/// The config that is written: the rank and the alpha that most modules have, and the others' by whole names.
LoraConfig written_config(const AdapterContents& contents);

/// The narrowest of fp64, fp32, fp16 and bf16 that holds every value of both.
DType widest(DType a, DType b);

/// Reads adapter_config.json and adapter_model.safetensors. Throws Error, naming the tensor, for anything but
/// whole pairs of lora_A and lora_B (lora_embedding_A and lora_embedding_B), DoRA's magnitudes and what
/// modules_to_save names; for ranks and targets that contradict the config, and for values that are NaN or
/// infinite (kRunFailed); and what read_adapter_config refuses.
AdapterContents read_adapter_contents(const std::filesystem::path& folder);

/// Writes both files into an existing folder, in the contents' dtype. Rank and alpha are the modules' own: of
/// the config only dropout, targets, modules_to_save and the kind (rsLoRA, DoRA) are taken. Throws Error for
/// an alpha or a rank that no adapter_config.json may have, and for values beyond the dtype's range
/// (kRunFailed).
void write_adapter_contents(const std::filesystem::path& folder, const AdapterContents& contents);

}  // namespace lorikeet::peft
