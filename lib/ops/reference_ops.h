#pragma once

namespace lorikeet::ops {

/// Whether operators compute by plain ATen calls in place of our kernels and of ATen's fused attention, on
/// CPUs and GPUs alike: slow, for a user who suspects a kernel. Matrix products are ATen's then, too.
/// The environment variable LORIKEET_REFERENCE_OPS decides: 1; unset, empty or 0 for kernels. It is read at
/// the first call, which logs a warning where references are taken. Throws Error (kUsage) for any other
/// value. Every place that chooses a kernel asks this first, also for the tensors of a dry run, whose plan so
/// follows.
bool reference_ops();

/// What reference_ops() answers from now on, in the whole process: for tests.
void set_reference_ops(bool on);

}  // namespace lorikeet::ops
