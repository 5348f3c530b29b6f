#pragma once

#include <memory>
#include <vector>

#include "probe/link_probe.h"

namespace lorikeet::probe {

using AllReduceRate =
    std::function<std::optional<double>(const std::vector<int>& devices, std::int64_t bytes)>;

/// Times transfers between CUDA devices: `numbers[gpu]` is CUDA's number of the topology's GPU, -1 for one
/// that isn't to be touched. `all_reduce_rate` is asked, with CUDA's numbers, for the rates of all-reduces.
/// Copies are made by the cards' copy engines between buffers of up to 256 MiB. Throws Error (kEnvironment)
/// in a build without CUDA; its calls do when CUDA fails.
std::unique_ptr<LinkTimer> make_cuda_link_timer(const std::vector<int>& numbers,
                                                const AllReduceRate& all_reduce_rate);

}  // namespace lorikeet::probe
