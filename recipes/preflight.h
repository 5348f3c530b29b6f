#pragma once

#include <optional>
#include <vector>

#include "config/settings.h"
#include "precision/policy.h"
#include "probe/active.h"
#include "probe/sources.h"
#include "recipes/rank_group.h"

namespace lorikeet::recipes {

/// What a run of these settings, not yet started, will use of this machine: `ranks` processes here (by
/// default one for each visible GPU that the settings allow, one on the CPU) of `nodes` machines. Where its
/// device isn't there, or can't do its precision, `findings` say so, and the answer is for the CPU.
probe::RunNeeds needs_of(const config::Settings& settings, std::optional<int> ranks, std::optional<int> nodes,
                         probe::Findings& findings);

/// The GPUs that the run takes, with their links as the inventory has them.
std::vector<probe::ProbedGpu> probed_gpus(const probe::Sources& sources);

/// The quick part of `lorikeet doctor`, at a run's start: the first process of each machine makes the passive
/// checks. Throws Error (kEnvironment) for what would surely break the run, or have it compute something else
/// than it says; else logs the warnings of all machines on the first rank, with the commands that mend.
/// `cpus`: as they were before the process was bound to those near its card. `devices`: of all ranks of this
/// machine.
void preflight(const config::Settings& settings, RankGroup& group, const std::vector<device::Device>& devices,
               const precision::Policy& policy, const probe::CpuFacts& cpus);

}  // namespace lorikeet::recipes
