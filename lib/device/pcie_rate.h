#pragma once

namespace lorikeet::device {

/// GB/s (1e9 bytes) that copies of large buffers reach over a PCIe link, in one direction: the rate of its
/// generation (1 to 6; others count as the nearest) after line coding, times its lanes (1 to 32), times 0.8
/// for headers and flow control. docs/topology.md has the sources.
double pcie_gb_per_second(unsigned generation, unsigned width);

}  // namespace lorikeet::device
