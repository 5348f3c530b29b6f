#include "device/pcie_rate.h"

#include <algorithm>

namespace lorikeet::device {

double pcie_gb_per_second(unsigned generation, unsigned width) {
  // GB/s of one lane and direction by generation, after line coding (PCI-SIG: 2.5, 5, 8, 16, 32, 64 GT/s).
  constexpr double kLane[] = {0.25, 0.5, 0.985, 1.969, 3.938, 7.563};
  // Of that, what copies of large buffers reach: usual figures are 12 to 13 GB/s for generation 3 and 25 to
  // 26 for generation 4, sixteen lanes each.
  constexpr double kPayload = 0.8;
  return kLane[std::clamp(generation, 1U, 6U) - 1] * std::clamp(width, 1U, 32U) * kPayload;
}

}  // namespace lorikeet::device
