#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "comm/placement.h"

namespace lorikeet::recipes {

/// The files that metrics.profile_steps asks for.
class StepTraces {
 public:
  /// `steps` count from 1.
  StepTraces(const std::vector<std::int64_t>& steps, std::filesystem::path output_dir,
             const comm::Placement& placement)
      : steps_(steps), output_dir_(std::move(output_dir)), placement_(placement) {}

  /// Throws Error (kUsage) when one is beyond the run's `total_steps`.
  static void require_within(const std::vector<std::int64_t>& steps, std::int64_t total_steps);

  /// Where to write this rank's trace of a step: trace_step_3.json, of several ranks
  /// trace_step_3_rank_1.json; nothing where it is not asked for. Ranks of other machines than the first
  /// write none: the output folder need not be there.
  std::optional<std::filesystem::path> file(std::int64_t step) const;

  /// True for the name of such a file.
  static bool is_trace_name(const std::string& name);

  /// Removes what an earlier run left in its output folder.
  static void remove_all(const std::filesystem::path& output_dir);

 private:
  const std::vector<std::int64_t>& steps_;
  std::filesystem::path output_dir_;
  comm::Placement placement_;
};

}  // namespace lorikeet::recipes
