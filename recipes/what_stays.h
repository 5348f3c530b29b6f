#pragma once

#include <cstdint>
#include <string>

#include "config/settings.h"
#include "train/checkpoint.h"

namespace lorikeet::recipes {

/// What is left of a run that ends before its last step, and the command that goes on with it, for the
/// messages that say so.
struct WhatStays {
  const config::CheckpointSettings& settings;
  std::int64_t steps = 0;  ///< that were done
  bool replaces = false;   ///< the run that this one was to replace is still in the folder
  /// Those of the run, on the rank that saves them; nullptr on the others.
  const train::CheckpointStore* checkpoints = nullptr;

  /// "after step 5; a checkpoint was saved, the same command goes on from it": behind `interrupted`.
  std::string after_interrupt() const;

  /// "the checkpoint of step 4 stays, and the same command goes on from it": of a run that had no time to
  /// save. Looks into the folder of checkpoints.
  std::string after_failure() const;

 private:
  std::string same_command() const;
  std::string how_to_go_on() const;
  std::string last_checkpoint() const;
  std::string nothing() const;
};

}  // namespace lorikeet::recipes
