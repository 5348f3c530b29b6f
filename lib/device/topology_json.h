#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"
#include "device/link_model.h"
#include "device/selection.h"
#include "device/topology.h"

namespace lorikeet::device {

/// A topology and what was measured of it, as a file holds them.
struct SavedTopology {
  Topology topology;
  Measurements measured;
};

/// What `lorikeet topo --json` prints; docs/topology.md describes it. `best` may be empty.
Json topology_json(const Topology& topology, const Measurements& measured,
                   const std::vector<Selection>& best);

/// Reads topology_json's form back; "best" and "inventory" are passed over. Throws Error (kUsage) with
/// `where` and the member's path for what isn't of that form or contradicts itself.
SavedTopology read_topology_json(const Json& json, const std::string& where);

/// Reads a saved matrix: JSON if it begins with '{', else nvidia-smi's text.
SavedTopology parse_saved_topology(std::string_view bytes, const std::string& where);

}  // namespace lorikeet::device
