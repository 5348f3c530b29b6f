#include "probe/all_reduce_rate.h"

#include "base/log.h"

namespace lorikeet::probe {

std::optional<double> all_reduce_rate(const ProbeProgram& program, const std::vector<int>& devices,
                                      std::int64_t bytes) {
  const ProbeRequest request{.bytes = bytes, .limit_seconds = 60};
  const bool cuda = devices.front() >= 0;
  const Findings judged = judge_all_reduce(run_all_reduce(program, request, devices), cuda, /*needed=*/true,
                                           request.limit_seconds);
  const Finding& one = judged.front();
  if (one.severity == Severity::kOk) return one.figures.at(0).second;
  log_warning(one.sentence + (one.command.empty() ? "" : "; " + one.command));
  return std::nullopt;
}

}  // namespace lorikeet::probe
