#pragma once

#include "probe/request.h"

// The active probes, as a child process runs them. Each throws Error, or whatever libtorch throws, when it
// can't be done; a wrong result is no error but part of the answer.
namespace lorikeet::probe {

/// Does what a request asks.
ProbeAnswer answer(const ProbeRequest& request);

/// Products of square matrices in `compute` by lib/ops, 1024 wide on a CPU, 8192 on a GPU: first of ones,
/// whose result is known, then of normal numbers, timed. Figures: gflops_per_second.
ProbeAnswer probe_matmul(const ProbeRequest& request);

/// 256 MiB between pinned main memory and GPU `device`. Figures: host_to_device_gb_per_second and
/// device_to_host_gb_per_second (1e9 bytes).
ProbeAnswer probe_transfer(const ProbeRequest& request);

/// 64 MiB of a pattern from GPU `device` to each of `peers`, twice, compared byte for byte there after.
/// Figures: to_cuda_<number>_gb_per_second. stderr names the pair that is being tried.
ProbeAnswer probe_peer_copy(const ProbeRequest& request);

/// This rank's part of all-reduces by lib/comm, over Gloo or NCCL, whose result is known, and of a gather and
/// a broadcast. Figures: bus_gb_per_second, as NCCL's tests count it.
ProbeAnswer probe_all_reduce(const ProbeRequest& request);

/// 16 MiB into a file of `folder`'s nearest existing parent, with fsync; the file has no name. Figures:
/// mb_per_second (1e6 bytes).
ProbeAnswer probe_write(const ProbeRequest& request);

}  // namespace lorikeet::probe
