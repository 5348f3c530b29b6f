#pragma once

#include <cstdint>
#include <optional>
#include <string>

namespace lorikeet::recipes {

/// How the settings of this run stand to those of the run that its output folder holds.
enum class SettingsVerdict {
  kSame,    ///< they compute the same
  kLonger,  ///< the same steps first, then more: the run there can be continued
  kOther,   ///< another run
};

/// How many steps the two runs have.
struct RunSteps {
  std::int64_t now = 0;                 ///< of this run, in all
  std::optional<std::int64_t> there{};  ///< of the other one, in all, where that is known
  bool there_ended = false;             ///< it came to their end
};

struct SettingsComparison {
  SettingsVerdict verdict = SettingsVerdict::kSame;
  std::string difference;  ///< "optimizer.lr: 1e-4 there, 2e-4 now", of each that differs
  std::string regrouped;   ///< the same of settings that group a step's rows, which may differ
  std::string advice;      ///< how to train on from a run that can't be made longer; else ""
};

/// Compares two runs' resolved settings (YAML): those that change numbers. Paths of the base, the data and a
/// chat template don't count, since what lies there is compared by fingerprints (a template's is that of the
/// tokens that it wrote), nor does a start adapter's where `start_compared` says that its fingerprint is;
/// else it counts as equal when both lead to the same place. Other epochs or max_steps that give as many
/// steps in all are kSame. More epochs or max_steps alone are kLonger where the learning rate of the steps
/// done stays what it was (lr_scheduler.name constant, a warm-up given in steps), where there are at least as
/// many steps in all, and where a longer run validates at the old end too.
SettingsComparison compare_run_settings(const std::string& there, const std::string& now,
                                        const RunSteps& steps, bool start_compared);

}  // namespace lorikeet::recipes
