#pragma once

#include <cstdint>
#include <vector>

#include <ATen/core/Tensor.h>

namespace lorikeet::probe {

/// Bus bandwidth in GB/s of all-reduces of `bytes` (fp32) on each of `devices`, ranks of one group made for
/// it that are threads of this process: 2 (N-1)/N of the bytes over the mean time of the slowest rank. At
/// least two devices. Throws Error where the group can't be made or a collective fails or takes longer than
/// 20 s.
double all_reduce_rate(const std::vector<at::Device>& devices, std::int64_t bytes);

}  // namespace lorikeet::probe
