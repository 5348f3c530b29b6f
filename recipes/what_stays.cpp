#include "recipes/what_stays.h"

#include <vector>

#include "base/error.h"

namespace lorikeet::recipes {

std::string WhatStays::after_interrupt() const {
  if (steps == 0) return "before the first step was done: " + nothing();
  return "after step " + std::to_string(steps) + "; a checkpoint was saved, " + how_to_go_on() + " it";
}

std::string WhatStays::after_failure() const { return steps == 0 ? nothing() : last_checkpoint(); }

std::string WhatStays::last_checkpoint() const {
  if (checkpoints == nullptr) return how_to_go_on() + " the last checkpoint that was saved";
  try {
    const std::vector<std::int64_t> saved = checkpoints->steps();
    if (saved.empty()) return "no checkpoint is there: " + same_command() + "begins anew";
    return "the checkpoint of step " + std::to_string(saved.back()) + " stays, and " + how_to_go_on() + " it";
  } catch (const Error&) {  // the disk may be what has failed
    return how_to_go_on() + " the last checkpoint that can be read";
  }
}

// With checkpoint.resume=never the same command would begin anew, or be refused.
std::string WhatStays::same_command() const {
  const bool resumes = settings.resume == config::Resume::kAuto;
  return std::string("the same command ") + (resumes ? "" : "with checkpoint.resume=auto ");
}

std::string WhatStays::how_to_go_on() const { return same_command() + "goes on from"; }

std::string WhatStays::nothing() const {
  return "nothing of the run was kept" +
         (replaces ? "; what '" + settings.output_dir + "' held is still there" : std::string());
}

}  // namespace lorikeet::recipes
