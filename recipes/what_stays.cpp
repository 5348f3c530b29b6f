#include "recipes/what_stays.h"

namespace lorikeet::recipes {

std::string WhatStays::after_interrupt() const {
  if (steps == 0) return "before the first step was done: " + nothing();
  return "after step " + std::to_string(steps) + "; a checkpoint was saved, " + how_to_go_on() + " it";
}

std::string WhatStays::after_failure() const {
  return steps == 0 ? nothing() : "checkpoints that were saved stay, and " + how_to_go_on() + " them";
}

// With checkpoint.resume=never the same command would begin anew, or be refused.
std::string WhatStays::how_to_go_on() const {
  const bool resumes = settings.resume == config::Resume::kAuto;
  return std::string("the same command ") + (resumes ? "" : "with checkpoint.resume=auto ") + "goes on from";
}

std::string WhatStays::nothing() const {
  return "nothing of the run was kept" +
         (replaces ? "; what '" + settings.output_dir + "' held is still there" : std::string());
}

}  // namespace lorikeet::recipes
