#pragma once

#include "base/json.h"
#include "device/inventory.h"

namespace lorikeet::device {

/// All that NVML told of this machine, untold fields with their reasons: the member "inventory" of what
/// `lorikeet topo --json` prints, which docs/topology.md describes.
Json inventory_json(const Inventory& inventory);

}  // namespace lorikeet::device
