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
};

struct AdapterContents {
  LoraConfig config;
  std::string base_model;                        ///< base_model_name_or_path, empty where the file has none
  DType dtype = {};                              ///< the widest of the file's tensors
  std::map<std::string, AdapterModule> modules;  ///< by the checkpoint's name, without ".weight"

  std::vector<std::string> names() const;
};

/// The config that is written: the rank and the alpha that most modules have, and the others' by whole names.
LoraConfig written_config(const AdapterContents& contents);

/// The narrowest of fp64, fp32, fp16 and bf16 that holds every value of both.
DType widest(DType a, DType b);

/// Reads adapter_config.json and adapter_model.safetensors. Throws Error, naming the tensor, for anything but
/// whole pairs of lora_A and lora_B (and DoRA's magnitudes) of linear modules, for ranks and targets that
/// contradict the config, and for values that are NaN or infinite (kRunFailed); and what read_adapter_config
/// refuses.
AdapterContents read_adapter_contents(const std::filesystem::path& folder);

/// Writes both files into an existing folder, in the contents' dtype. Rank and alpha are the modules' own: of
/// the config only dropout, targets and the kind (rsLoRA, DoRA) are taken. Throws Error for an alpha or a
/// rank that no adapter_config.json may have, and for values beyond the dtype's range (kRunFailed).
void write_adapter_contents(const std::filesystem::path& folder, const AdapterContents& contents);

}  // namespace lorikeet::peft
