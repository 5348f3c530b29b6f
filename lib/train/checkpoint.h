#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "peft/lora.h"
#include "train/adamw.h"
#include "train/run_state.h"

namespace lorikeet::train {

/// Calls `save`, which writes into a run's output folder. One that was deleted is not made anew: throws Error
/// (kRunFailed) then, also where it was deleted while `save` wrote and failed.
void save_in_run(const std::filesystem::path& output_dir, const std::function<void()>& save);

/// The checkpoints of one run: `checkpoints/step_<n>/` (io/step_folder.h) under its output folder, each
/// written whole or not at all.
///
/// A checkpoint holds the adapter as PEFT files, the optimizer's moments by parameter name
/// (optimizer.safetensors), the run's state (trainer_state.json) and a manifest with the hashes of all these
/// (io/manifest.h). Tensors go by name, never by offset, and have their rows in module order (nn::RowOrder),
/// moments too, so that a build that lays them out otherwise reads it too. Resuming from one continues
/// bitwise on the same device and threads.
class CheckpointStore {
 public:
  CheckpointStore(const std::filesystem::path& output_dir, std::string base_model,
                  std::optional<std::int64_t> keep_last);

  /// Saves, then removes the oldest beyond `keep_last`. Throws Error (disk full and the like); what was there
  /// before is untouched then. An output folder that was deleted is not made anew (kRunFailed).
  void save(const RunState& state, const peft::LoraAdapters& adapters, const AdamW& optimizer) const;

  /// Removes the oldest beyond `keep_last`; also for a run that goes on after it was killed before it did so.
  /// What can't be removed stays, with a warning.
  void remove_old() const;

  /// Where the checkpoint of a step is, or would be.
  std::filesystem::path folder(std::int64_t step) const;

  /// Steps of the complete checkpoints, ascending. Throws Error (kEnvironment) when the folder of checkpoints
  /// can't be read.
  std::vector<std::int64_t> steps() const;

  /// Folders with a step's name that hold a run's state and lack our marker, so that they are neither read
  /// nor replaced: checkpoints whose marker was lost. Throws as `steps` does.
  std::vector<std::filesystem::path> unmarked() const;

  /// Loads the checkpoint of `step` into allocated adapters and optimizer. Throws Error when anything is
  /// missing, doesn't fit or isn't what its manifest says; warns where there is no manifest (checkpoints of
  /// version 0.1 have none).
  RunState load(std::int64_t step, peft::LoraAdapters& adapters, AdamW& optimizer) const;

  /// Removes all of this run's checkpoints.
  void remove_all() const;

 private:
  void write(const RunState& state, const peft::LoraAdapters& adapters, const AdamW& optimizer) const;

  std::filesystem::path root_;
  std::string base_model_;
  std::optional<std::int64_t> keep_last_;
};

}  // namespace lorikeet::train
