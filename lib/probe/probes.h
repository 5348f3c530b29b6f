#pragma once

#include "probe/request.h"

// The active probes, which run in a child process. Each throws Error, or an exception of libtorch's, when it
// can't run; a wrong result is not an error but part of the answer.
namespace lorikeet::probe {

/// Runs the probe that `request` names.
ProbeAnswer answer(const ProbeRequest& request);

/// Multiplies square matrices in `compute` by lib/ops, 1024 wide on a CPU, 8192 on a GPU: first matrices of
/// ones, whose product is known, then of normal numbers, timed. Figures: gflops_per_second. 16-bit matrices
/// on a CPU are multiplied both ways (probe/product_rates.h), and gflops_per_second is the faster way's;
/// further figures: native_gflops_per_second, widened_gflops_per_second, native_over_widened.
ProbeAnswer probe_matmul(const ProbeRequest& request);

/// Copies 256 MiB between pinned host memory and GPU `device`. Figures: host_to_device_gb_per_second and
/// device_to_host_gb_per_second (1e9 bytes).
ProbeAnswer probe_transfer(const ProbeRequest& request);

/// Copies a pattern of 64 MiB from GPU `device` to each of `peers`, twice, and compares the copy byte for
/// byte. Figures: to_cuda_<number>_gb_per_second. stderr names the pair before its copy.
ProbeAnswer probe_peer_copy(const ProbeRequest& request);

/// This rank's part of all-reduces by lib/comm, over Gloo or NCCL, whose result is known, and of a gather and
/// a broadcast. Figures: bus_gb_per_second, as nccl-tests defines it.
ProbeAnswer probe_all_reduce(const ProbeRequest& request);

/// Writes 16 MiB with fsync into an unnamed file in `folder`'s nearest existing parent. Figures:
/// mb_per_second (1e6 bytes).
ProbeAnswer probe_write(const ProbeRequest& request);

}  // namespace lorikeet::probe
