#pragma once

#include "compare.h"

namespace lorikeet::bench {

/// The operators beside the recurrence of a gated delta net, those of Mamba 2's that differ (a convolution
/// with a bias, the norm of what was gated), and the gate of attention, at the shapes of Qwen3.5's 0.8B:
/// 2,048 tokens, a convolution of 4 taps over 6,144 channels that are columns of rows of 8,192, and 16 heads
/// of 128.
void bench_delta_net(const Settings& settings);

}  // namespace lorikeet::bench
