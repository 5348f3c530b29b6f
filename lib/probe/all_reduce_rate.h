#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "probe/active.h"

namespace lorikeet::probe {

/// Bus bandwidth in GB/s of all-reduces of `bytes` (fp32) over `devices` (CUDA's numbers; -1 is the CPU), at
/// least two, each a child process of its own: 2 (N-1)/N of the bytes over the mean time of the slowest rank.
/// Empty, with a warning in the log, when a rank fails, a sum is wrong, or it takes longer than a minute.
std::optional<double> all_reduce_rate(const ProbeProgram& program, const std::vector<int>& devices,
                                      std::int64_t bytes);

}  // namespace lorikeet::probe
