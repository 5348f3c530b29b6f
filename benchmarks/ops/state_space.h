#pragma once

#include "compare.h"

namespace lorikeet::bench {

/// Mamba 2's state space at the shape of Granite 4.0 H Micro: 2,048 tokens, 64 heads of 64, one group with a
/// state of 128.
void bench_state_space(const Settings& settings);

}  // namespace lorikeet::bench
