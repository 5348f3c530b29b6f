#pragma once

#include <string>
#include <string_view>

#include "device/topology.h"

namespace lorikeet::device {

/// Reads what `nvidia-smi topo -m` prints: columns of any width, set by blanks or tabs, with terminal
/// escapes; GPUs, NICs by number or by name, the legend of NICs; CPU and NUMA affinity and GPU NUMA ID, each
/// of which may be absent, empty or N/A. What `nvidia-smi -L` prints may stand before the matrix: it gives
/// models, UUIDs and MIG slices. Other lines before and after the matrix are passed over.
///
/// Strict on the matrix: throws Error (kUsage) that names `where` and the line for an unknown class, a row
/// too short, too long, missing or out of order, two directions that disagree, a bad affinity, more than
/// kMostTopologyDevices, or more than a MiB of text.
Topology parse_topology_text(std::string_view text, const std::string& where);

/// The matrix as `nvidia-smi topo -m` would print it, with blanks: what parse_topology_text reads back.
std::string format_topology_text(const Topology& topology);

}  // namespace lorikeet::device
