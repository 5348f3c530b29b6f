#include "recipes/step_traces.h"

#include <algorithm>
#include <string>

#include "base/error.h"

namespace lorikeet::recipes {
namespace {

constexpr const char* kPrefix = "trace_step_";

}  // namespace

void StepTraces::require_within(const std::vector<std::int64_t>& steps, std::int64_t total_steps) {
  for (const std::int64_t step : steps) {
    if (step <= total_steps) continue;
    throw Error("[metrics.profile_steps] expected steps from 1 to " + std::to_string(total_steps) +
                ", which is the run's last, got " + std::to_string(step));
  }
}

std::optional<std::filesystem::path> StepTraces::file(std::int64_t step) const {
  const bool asked = std::find(steps_.begin(), steps_.end(), step) != steps_.end();
  if (!asked || placement_.node != 0) return std::nullopt;
  return output_dir_ / (kPrefix + std::to_string(step) +
                        (placement_.alone() ? "" : "_rank_" + std::to_string(placement_.rank)) + ".json");
}

bool StepTraces::is_trace_name(const std::string& name) {
  return name.starts_with(kPrefix) && name.ends_with(".json");
}

void StepTraces::remove_all(const std::filesystem::path& output_dir) {
  std::error_code ignored;
  for (const auto& entry : std::filesystem::directory_iterator(output_dir, ignored)) {
    if (is_trace_name(entry.path().filename().string())) std::filesystem::remove(entry.path());
  }
}

}  // namespace lorikeet::recipes
