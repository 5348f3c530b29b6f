#pragma once

#include <ATen/core/Tensor.h>

#include <filesystem>
#include <string>

#include "base/json.h"
#include "io/safetensors.h"

// What every reader and writer of a PEFT adapter folder has to know of it.
namespace lorikeet::peft {

inline constexpr const char* kAdapterTensors = "adapter_model.safetensors";
inline constexpr const char* kAdapterConfig = "adapter_config.json";
/// Before the names of the checkpoint's modules in the file of tensors.
inline constexpr const char* kAdapterPrefix = "base_model.model.";

/// adapter_config.json of a folder. Throws Error when there is none, or it can't be read.
Json read_adapter_json(const std::filesystem::path& folder);

/// Its adapter_model.safetensors. Throws Error when there is none, or it can't be read.
io::SafetensorsFile open_adapter_tensors(const std::filesystem::path& folder);

/// Throws Error (kRunFailed) for a tensor of `file` with values that are NaN or infinite.
void require_finite(const at::Tensor& value, const std::string& name, const std::filesystem::path& file);

}  // namespace lorikeet::peft
