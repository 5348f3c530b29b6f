#pragma once

#include <string>

#include "device/topology.h"

namespace lorikeet::device {

/// The devices as a tree of indented lines: NUMA nodes (by NUMA affinity, else CPU affinity, else what is
/// joined by NODE or nearer), host bridges, PCIe switches, and in them GPUs with model, free memory and PCIe
/// link, and NICs; then a line for each group that NVLink joins. NVLink hides what is behind it on PCIe: such
/// GPUs stand directly under their NUMA node.
std::string format_topology_tree(const Topology& topology);

}  // namespace lorikeet::device
