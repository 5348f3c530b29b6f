#pragma once

#include <filesystem>
#include <string>

#include "peft/lora.h"
#include "train/run_state.h"

namespace lorikeet::recipes {

/// The best validated adapter, in a folder of this name under the output folder.
inline constexpr const char* kBestFolder = "best";

/// Writes the adapter, which of `state`'s evaluations it is (best.json) and a manifest, whole or not at all.
/// Throws Error as train::save_in_run does.
void save_best(const std::filesystem::path& output_dir, const peft::LoraAdapters& adapters,
               const std::string& base_model, const train::RunState& state);

/// Throws Error, naming what is wrong, unless the folder holds, undamaged, what a run that goes on from
/// `state` needs: the adapter of `state.best`, one that validated no worse, or one of a later step, which the
/// run will come to again.
void require_best(const std::filesystem::path& output_dir, const train::RunState& state);

/// Fills `adapters` with the adapter of `state.best`, or the one that validated no worse, which becomes it.
/// Throws Error when the folder holds another.
void load_best(const std::filesystem::path& output_dir, train::RunState& state, peft::LoraAdapters& adapters);

}  // namespace lorikeet::recipes
