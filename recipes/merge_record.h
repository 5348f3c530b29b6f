#pragma once

#include <filesystem>

// merged_adapters.json in a merged checkpoint's folder: the SHA-256 of adapter_model.safetensors of each
// adapter that was merged into it, so that nobody adds one twice unawares.
namespace lorikeet::recipes {

inline constexpr const char* kMergeRecord = "merged_adapters.json";

/// Adds the PEFT adapter in the folder `adapter` to the record in `merged`, which may be a copy of the
/// base's.
void record_merged(const std::filesystem::path& merged, const std::filesystem::path& adapter);

/// Warns where the record of the checkpoint `model` has the adapter; whether it did.
bool warn_if_merged(const std::filesystem::path& model, const std::filesystem::path& adapter);

}  // namespace lorikeet::recipes
