#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "bench/evaluation.h"
#include "config/settings.h"

// Running a recipe on several numbers of devices, for `lorikeet bench scaling`.
namespace lorikeet::apps {

struct ScalingOptions {
  std::vector<int> devices;  ///< rising
  int repeats = 3;
  int steps = 10;                             ///< measured, of each run
  int warmup_steps = 2;                       ///< before them
  std::optional<std::string> synthetic;       ///< "ROWSxLENGTH"
  std::optional<int> threads, total_threads;  ///< at most one of them
  std::filesystem::path work;                 ///< an empty folder, to write into
  std::optional<std::filesystem::path> keep;  ///< where the runs' records are kept
};

/// Threads of each process where `devices` of them run. Without an option every one has the same number at
/// every N: OMP_NUM_THREADS, or the cores divided by the largest N. Throws Error when total_threads can't be
/// divided.
int threads_each(const ScalingOptions& options, int devices);

/// `settings` as the benchmark runs them: so many steps and nothing but steps (no validation, no warm-up of
/// the learning rate, no checkpoint but the last), with rows of random tokens where asked for.
config::Settings bench_settings(config::Settings settings, const ScalingOptions& options);

/// What the runs gave.
struct ScalingRuns {
  std::vector<bench::Group> groups;  ///< by number of devices
  bool interrupted = false;
};

/// Runs the recipe at every number of devices in turn, round after round, with the programs beside this one.
/// A number that has failed isn't tried again. Throws Error when two runs turn out not to have done the same
/// work.
ScalingRuns run_scaling(const config::Settings& settings, const ScalingOptions& options);

}  // namespace lorikeet::apps
