#pragma once

#include <filesystem>
#include <string>

#include "peft/lora.h"

namespace lorikeet::peft {

/// Writes `adapter_model.safetensors` (PEFT's tensor names and order of rows, the adapter's dtype) and
/// `adapter_config.json` into an existing folder, each atomically.
void save_adapter(const std::filesystem::path& folder, const LoraAdapters& adapters,
                  const std::string& base_model);

/// The LoRA settings of a PEFT adapter folder. Throws Error when there is none, or it can't be computed here.
LoraConfig load_adapter_config(const std::filesystem::path& folder);

/// Holds the tensors of a PEFT adapter folder against those that `adapters` declares, allocated or not: sizes
/// that a damaged adapter_config.json made up never become memory. Throws Error for what load_adapter would.
void require_adapter_fits(const std::filesystem::path& folder, const LoraAdapters& adapters);

/// PEFT writes the base's own table beside an adapter of the embedding or the head: throws Error where one in
/// the folder isn't `base`'s.
void require_same_base(const std::filesystem::path& folder, const LoraAdapters& adapters,
                       const nn::WeightStore& base);

/// Fills the values of `adapters` (allocated, of the same settings) from a PEFT adapter folder. Every tensor
/// must be there in its shape and no other may be: PEFT itself ignores misspelt names silently. Throws Error
/// otherwise, and for values that are NaN or infinite (kRunFailed); changes nothing then.
void load_adapter(const std::filesystem::path& folder, LoraAdapters& adapters);

/// sha256 of what the adapter in a PEFT folder computes with: its tensors by the names that the model has for
/// them, and the scale of each module of `adapters`. Neither the folder's path nor how the files spell it
/// counts, nor whether it fits. Throws Error for a folder that can't be read.
std::string adapter_fingerprint(const std::filesystem::path& folder, const LoraAdapters& adapters);

/// Throws Error, naming every key that disagrees, unless an adapter of `found` goes on as one of `wanted`
/// (rank, alpha, scaling rule, targets; `all-linear` agrees with what it stands for when tensors are loaded).
void require_same_settings(const LoraConfig& wanted, const LoraConfig& found, const std::string& where);

/// Throws Error, naming the first module whose rank or alpha by `found` is another than in `adapters`.
void require_same_scales(const LoraAdapters& adapters, const LoraConfig& found, const std::string& where);

}  // namespace lorikeet::peft
