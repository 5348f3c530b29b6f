#pragma once

#include <filesystem>
#include <optional>
#include <string>

#include "config/settings.h"
#include "data/load.h"
#include "peft/lora.h"
#include "recipes/model_session.h"
#include "recipes/rank_group.h"
#include "train/adamw.h"
#include "train/checkpoint.h"
#include "train/run_state.h"

namespace lorikeet::recipes {

/// Fills adapters and optimizer from the latest checkpoint and returns where the run stands, or nothing where
/// there is no checkpoint; removes those that a killed run should have removed. Throws Error, with what to
/// do, when it is damaged, when a checkpoint lacks our marker, or when the best adapter that its state names
/// (looked for with `keep_best`) isn't in `output_dir`.
std::optional<train::RunState> load_latest_checkpoint(const train::CheckpointStore& checkpoints,
                                                      const std::filesystem::path& output_dir, bool keep_best,
                                                      peft::LoraAdapters& adapters, train::AdamW& optimizer);

/// The fingerprint (base/fingerprint.h) of the adapter in the folder that lora.init names; "" where it names
/// no folder, or no adapter is there. Throws Error for one that can't be read.
std::string start_fingerprint(const config::LoraSettings& settings, const peft::LoraAdapters& adapters);

/// The values that a new run begins with: drawn, or those of the adapter folder that `settings.init` names,
/// whose start_fingerprint is returned. The session has its weights. What is computed from them, each rank
/// gets from the first: roundings differ between machines. Throws Error when the folder's adapter is of
/// another shape or rule, or has rows for other tokens; warns where it was trained on another base, or with
/// another chat template than the training rows (`rows`) are written by.
std::string initialize_adapters(const config::Settings& settings, const ModelSession& session,
                                const data::FileReport& rows, RankGroup& group);

}  // namespace lorikeet::recipes
