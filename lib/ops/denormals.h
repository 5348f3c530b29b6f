#pragma once

namespace lorikeet::ops {

/// From now on numbers below the smallest normal one (1.2e-38 in fp32) count as 0 on this thread and on those
/// that it starts; on CPUs that can't do that nothing changes. Such numbers cost a CPU a hundred cycles each,
/// and backward through sharp attention makes them by the million: probabilities of 1e-30 times gradients.
/// To be called while there is one thread.
void flush_denormals();

}  // namespace lorikeet::ops
