#pragma once

#include <filesystem>

#include "device/topology.h"

namespace lorikeet::device {

/// Adds the machine's InfiniBand and RoCE cards to `topology`, by name, as `nvidia-smi topo -m` does: those
/// under `sys`/class/infiniband (`sys` is "/sys" but in tests), each with its links to GPUs and other NICs
/// from where the kernel has them in its tree of PCI devices. A GPU without a bus id, or one that the tree
/// lacks, has unknown links. Adds none where the folder is absent.
void add_nics(Topology& topology, const std::filesystem::path& sys);

}  // namespace lorikeet::device
