#pragma once

#include <cstdint>
#include <string>

#include "config/settings.h"

namespace lorikeet::recipes {

/// What is left of a run that ends before its last step, and the command that goes on with it, for the
/// messages that say so.
struct WhatStays {
  const config::CheckpointSettings& settings;
  std::int64_t steps = 0;  ///< that were done
  bool replaces = false;   ///< the run that this one was to replace is still in the folder

  /// "after step 5; a checkpoint was saved, the same command goes on from it": behind `interrupted`.
  std::string after_interrupt() const;

  /// The same of a run that had no time to save.
  std::string after_failure() const;

 private:
  std::string how_to_go_on() const;
  std::string nothing() const;
};

}  // namespace lorikeet::recipes
