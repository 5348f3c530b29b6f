#pragma once

#include <memory>
#include <vector>

#include "probe/link_probe.h"

namespace lorikeet::probe {

using AllReduceRate =
    std::function<std::optional<double>(const std::vector<int>& devices, std::int64_t bytes)>;

/// A timer of transfers between CUDA devices. `numbers[gpu]` is CUDA's number of the topology's GPU, or -1
/// for one that must not be used. `all_reduce_rate` measures all-reduces, by CUDA's numbers. Copies use the
/// cards' copy engines and buffers of up to 256 MiB. Throws Error (kEnvironment) in a build without CUDA; the
/// timer's methods throw it when CUDA fails.
std::unique_ptr<LinkTimer> make_cuda_link_timer(const std::vector<int>& numbers,
                                                const AllReduceRate& all_reduce_rate);

}  // namespace lorikeet::probe
