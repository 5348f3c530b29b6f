#pragma once

#include <cstdint>

#include "base/json.h"
#include "device/inventory.h"
#include "device/link_model.h"
#include "device/topology.h"
#include "probe/link_probe.h"

namespace lorikeet::apps {

/// Times the links between those of `candidates` that CUDA offers and that aren't in MIG mode, with
/// all-reduces of `payload_bytes`, and keeps the result for later runs. Throws Error (kEnvironment) where
/// there are fewer than two.
probe::LinkProbe measure_links(const device::Inventory& inventory, const device::Topology& topology,
                               const device::GpuSet& candidates, std::int64_t payload_bytes);

/// Prints what was measured to stdout.
void print_probe(const device::Topology& topology, const probe::LinkProbe& probe);

/// The same as the member "probe" of the verb's JSON.
Json probe_json(const probe::LinkProbe& probe);

}  // namespace lorikeet::apps
